-- Lets a task into the line of those that wait for a limiter outside of asynq's slots, or past it.
--
-- A limiter has a line for each queue. Together they are fair by weight: a task's place lies cost/weight behind the last
-- place of its queue, or behind the last place called if that is later. So a queue of weight 6 is called six times as
-- often as one of weight 1, each queue in its order, and a queue that was empty does not wait behind others. Places of
-- different queues compare with the shifts of their queues added: see call.lua.
--
-- KEYS[1] line:   zset, task -> place; of the task's queue
-- KEYS[2] called: hash, task -> "place ms": called ms after 1970 and not back yet; 0: see again.lua
-- KEYS[3] clock:  hash, "now" -> the last place called, shift added; "live" -> tasks in the lines that somebody looks
--                 after; for each QUEUE: "last:QUEUE" -> its last place, "looked:QUEUE" -> when somebody who serves it
--                 looked, in milliseconds after 1970, "shift:QUEUE" -> what to add to its places
-- KEYS[4] costs:  hash, task -> permits, of those that cost other than 1
-- KEYS[5] kept:   hash, task -> "since back": when it first parked here, in milliseconds after 1970, for people only;
--                 when asynq brings it back by itself, in seconds after 1970: tells it from one enqueued again. 0: unknown
-- KEYS[6] the clock of the version before this one, whose places go on here
-- KEYS[7] to KEYS[9] if its workers may be there: its called, costs and since; see adopt.lua
-- ARGV[1] task, QUEUE:ID, the queue's name escaped
-- ARGV[2] the queue's name as it is
-- ARGV[3] permits the task costs
-- ARGV[4] weight of the queue
-- ARGV[5] what for: "arrive" only asks whether it was called, "join" queues it unless it may go on, "park" queues it,
--         "aside" keeps its place as that of a task that was called, for which no permits are spoken
-- ARGV[6] "place since" it was called from, or ""
-- ARGV[7] for "park" and "aside": when asynq brings it back by itself, as in kept
-- Reply: {1, "place since"} it was called from that place; {1, ""} it may go on; {0, tasks in line} it is in line; {0, 0} it is neither
-- in line nor called, or it is set aside.
local line, called, clock, costs, kept = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local task, cost, weight, purpose = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local queue = string.match(task, "^[^:]*")
local place, since = string.match(ARGV[6], "^(%S+) (%d+)$")

local function now()
  local t = redis.call("TIME")
  return string.format("%.0f", tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000))
end
local function keptSince()
  return string.match(redis.call("HGET", kept, task) or "", "^%d+")
end

if purpose == "aside" then
  redis.call("HSET", called, task, place .. " " .. now())
  redis.call("HSET", costs, task, 0)
  redis.call("HSET", kept, task, since .. " " .. ARGV[7])
  return {0, 0}
end

if purpose ~= "park" then
  local old = KEYS[7] and redis.call("HGET", KEYS[7], task)
  if old then
    since = redis.call("HGET", KEYS[9], task) or now()
    for i = 7, 9 do redis.call("HDEL", KEYS[i], task) end
    return {1, string.match(old, "^%S+") .. " " .. since}
  end
  local was = redis.call("HGET", called, task)
  if was then
    since = keptSince() or now()
    redis.call("HDEL", called, task)
    redis.call("HDEL", costs, task)
    redis.call("HDEL", kept, task)
    return {1, string.match(was, "^%S+") .. " " .. since}
  end
  if purpose == "arrive" then
    if not redis.call("ZSCORE", line, task) then return {0, 0} end
    return {0, math.max(redis.call("ZCARD", line), tonumber(redis.call("HGET", clock, "live") or "0"))}
  end
  if redis.call("EXISTS", line) == 0 then
    return {1, ""}
  end
end

local known = redis.call("HMGET", clock, "last:" .. queue, "shift:" .. queue, "now", "live")
if not redis.call("ZSCORE", line, task) then
  local changes = {}
  if not place then
    local last, shift, latest = known[1], tonumber(known[2] or "0"), known[3]
    if not last then
      local before = redis.call("HMGET", KEYS[6], "last:" .. ARGV[2], "now")
      last, latest = before[1] or "0", latest or before[2]
    end
    place = string.format("%.17g", math.max(tonumber(last), tonumber(latest or "0") - shift) + cost / weight)
    changes = {"last:" .. queue, place}
  elseif not known[1] then -- all others of its line are gone since it was called
    changes = {"last:" .. queue, place, "now", known[3] or place}
  end
  if redis.call("EXISTS", line) == 0 then -- who parks the first serves the queue
    changes[#changes + 1] = "looked:" .. queue
    changes[#changes + 1] = now()
  end
  if #changes > 0 then
    redis.call("HSET", clock, unpack(changes))
  end
  redis.call("ZADD", line, place, task)
  redis.call("HDEL", called, task)
  if cost ~= 1 then
    redis.call("HSET", costs, task, cost)
  end
else
  since = keptSince()
end
redis.call("HSET", kept, task, (since or now()) .. " " .. ARGV[7])
return {0, math.max(redis.call("ZCARD", line), tonumber(known[4] or "0"))}

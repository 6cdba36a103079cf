-- Lets a task into the line of those that wait for a limiter outside of asynq's slots, or past it.
--
-- The line is fair by weight: a task's place lies cost/weight behind the last place of its queue, or
-- behind the last place called if that is later. So a queue of weight 6 is called six times as often
-- as one of weight 1, each queue in its order, and a queue that was empty does not wait behind others.
--
-- KEYS[1] line:   zset, task -> place
-- KEYS[2] called: hash, task -> "place ms": called ms after 1970 and not back yet
-- KEYS[3] clock:  hash, "now" -> the last place called, "last:QUEUE" -> its last place, "count:QUEUE" -> its tasks in line
-- KEYS[4] costs:  hash, task -> permits, of those that cost other than 1
-- KEYS[5] since:  hash, task -> when it first parked here, in milliseconds after 1970; for people only
-- ARGV[1] task, QUEUE:ID
-- ARGV[2] queue
-- ARGV[3] permits the task costs
-- ARGV[4] weight of the queue
-- ARGV[5] what for: "arrive" only asks whether it was called, "join" queues it unless it may go on, "park" queues it
-- ARGV[6] "place since" it was called from, or ""
-- Reply: {1, "place since"} it was called from that place; {1, ""} it may go on; {0, tasks in line} it is in line, or was not called.
local line, called, clock, costs, since = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local task, queue, cost, weight, purpose = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local place, parked = string.match(ARGV[6], "^(%S+) (%d+)$")

local function now()
  local t = redis.call("TIME")
  return string.format("%.0f", tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000))
end

if purpose ~= "park" then
  local was = redis.call("HGET", called, task)
  if was then
    redis.call("HDEL", called, task)
    redis.call("HDEL", costs, task)
    parked = redis.call("HGET", since, task) or now()
    redis.call("HDEL", since, task)
    return {1, string.match(was, "^%S+") .. " " .. parked}
  end
  if purpose == "arrive" then
    return {0, 0}
  end
  if tonumber(redis.call("HGET", clock, "count:" .. queue) or "0") <= 0 then
    return {1, ""}
  end
end

if not redis.call("ZSCORE", line, task) then
  if not place then
    local last = tonumber(redis.call("HGET", clock, "last:" .. queue) or "0")
    local latest = tonumber(redis.call("HGET", clock, "now") or "0")
    place = string.format("%.17g", math.max(last, latest) + cost / weight)
    redis.call("HSET", clock, "last:" .. queue, place)
  end
  redis.call("ZADD", line, place, task)
  redis.call("HINCRBY", clock, "count:" .. queue, 1)
  redis.call("HDEL", called, task)
  redis.call("HSET", since, task, parked or now())
  if cost ~= 1 then
    redis.call("HSET", costs, task, cost)
  end
end
return {0, redis.call("ZCARD", line)}

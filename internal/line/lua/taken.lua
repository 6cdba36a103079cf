-- What take.lua and bring.lua share: how tasks become active in the process that asks. This file is put before each verb's own.
-- The room lists each until it begins to run, or parks, or goes back, in case its process dies before. The time of the take is
-- noted: an answer that was lost moves nothing of a later attempt.

-- activate makes tasks active until their leases end.
local function activate(prefix, active, leases, ends, ids)
  local until_then = {}
  for i, id in ipairs(ids) do until_then[2 * i - 1], until_then[2 * i] = ends, id end
  redis.call("LPUSH", active, unpack(ids))
  redis.call("ZADD", leases, unpack(until_then))
  redis.call("SADD", prefix .. "jt:room", unpack(ids))
end

-- latest_take is the latest time at which a task of the queue was first taken, whatever Redis's clock does.
local function latest_take(prefix, now)
  return math.max(tonumber(redis.call("GET", prefix .. "jt:first") or "0"), tonumber(now) - 1)
end

-- first_take returns when a task was first taken, and the latest of those times: later than all before, or its arrival if it
-- parked before anybody kept orders.
local function first_take(task, arrival, latest)
  local first = redis.call("HGET", task, "first")
  if first then return first, latest end
  latest = latest + 1
  first = arrival or string.format("%.0f", latest)
  redis.call("HSET", task, "first", first)
  return first, latest
end

-- note_takes has nobody come first who was taken later than these, until their process has told their limits by order.lua.
-- untold has the time of the first take and the id of each.
local function note_takes(prefix, latest, untold)
  redis.call("ZADD", prefix .. "jt:untold", unpack(untold))
  redis.call("PEXPIRE", prefix .. "jt:untold", 86400000)
  redis.call("SET", prefix .. "jt:first", string.format("%.0f", latest), "PX", 86400000)
end

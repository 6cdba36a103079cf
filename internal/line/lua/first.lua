-- What the scripts share that keep the order of tasks which need the same slot, one at a time. Go puts this file before
-- each of these scripts. A task comes first until it has ended: until it is done, archived or deleted. A task that
-- failed and waits to be retried has not ended.
--
--   field first of a task's hash    when it was first taken from its queue, in microseconds after 1970: each later than the one before
--   asynq:{QUEUE}:jt:first          the latest of those
--   asynq:{QUEUE}:jt:untold         zset: id -> first, of tasks that were taken and whose limits nobody has told yet
--   asynq:{QUEUE}:jt:order:LIMITER  zset: id -> first: an id that is there for an earlier task does not count
--   asynq:{QUEUE}:jt:line:!in_flight:LIMITER  the line of those that wait for the slot (park.lua): a task that parked untold is in no order

-- of reads fields of a task: {} if somebody has written something there that is not a task.
local function of(prefix, id, ...)
  local known = redis.pcall("HMGET", prefix .. "t:" .. id, ...)
  return known.err and {} or known
end

-- waiting says whether the task of an id in an order has not ended.
local function waiting(prefix, id, score)
  local known = of(prefix, id, "state", "first")
  local state = known[1]
  return (state == "active" or state == "pending" or state == "retry") and tonumber(known[2] or nil) == tonumber(score)
end

-- parked says whether the task of an id waits in a line.
local function parked(prefix, id, line)
  local known = of(prefix, id, "state", "jt")
  return known[1] == "retry" and string.match(known[2] or "", "^p %d+ %d+ %d+ %d+ %d+ (.*)$") == line
end

-- head returns the first id of a zset for which there() is true, and its score. It removes those before it.
local function head(prefix, key, there, line)
  for _ = 1, 1000 do
    local found = redis.call("ZRANGE", key, 0, 0, "WITHSCORES")
    if not found[1] then return nil end
    if there(prefix, found[1], line or found[2]) then return found[1], tonumber(found[2]) end
    redis.call("ZREM", key, found[1])
  end
end

-- first returns the id that comes first in the order of a limiter.
local function first(prefix, limiter)
  local line = "!in_flight:" .. limiter
  local id, at = head(prefix, prefix .. "jt:order:" .. limiter, waiting)
  local other, came = head(prefix, prefix .. "jt:line:" .. line, parked, line)
  if other and (not at or came < at) then return other end
  return id
end

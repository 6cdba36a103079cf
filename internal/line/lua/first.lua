-- What the scripts share that keep the order of tasks which need the same slot, one at a time. This file is put before each
-- verb's own. A task comes first until it has ended: done, archived or deleted. One that failed, and waits to be retried, has
-- not.
--
--   asynq:{QUEUE}:jt:order:LIMITER  zset: id -> when it was first taken from the queue, in microseconds after 1970
--   field first of a task's hash    the same: an id that stands there for an earlier task is none
--   asynq:{QUEUE}:jt:unread         zset: id -> the same, of tasks that were taken and whose limits nobody has told yet

-- of reads fields of a task: {} if somebody has written there what is no task.
local function of(prefix, id, ...)
  local known = redis.pcall("HMGET", prefix .. "t:" .. id, ...)
  return known.err and {} or known
end

-- waiting says whether the task of an id in that order has not ended.
local function waiting(prefix, id, score)
  local known = of(prefix, id, "state", "first")
  local state = known[1]
  return (state == "active" or state == "pending" or state == "retry") and tonumber(known[2] or nil) == tonumber(score)
end

-- first returns the id that comes first in the order of a limiter, and when it came. Those that have ended leave it.
local function first(prefix, limiter)
  local key = prefix .. "jt:order:" .. limiter
  for _ = 1, 1000 do
    local head = redis.call("ZRANGE", key, 0, 0, "WITHSCORES")
    if not head[1] then return nil end
    if waiting(prefix, head[1], head[2]) then return head[1], tonumber(head[2]) end
    redis.call("ZREM", key, head[1])
  end
end

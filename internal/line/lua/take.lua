-- Takes the next task of a queue: asynq's own dequeue, which also says how the task has waited so far. From then on it
-- is in no line. The room lists it until it begins to run, or parks, or goes back, in case its process dies before.
--
-- KEYS[1] to KEYS[4] asynq's pending list, paused mark, active list, leases
-- ARGV[1] when the lease ends, in seconds after 1970
-- ARGV[2] what the keys of the queue begin with: asynq:{QUEUE}:
-- Reply: {message, id, wait or "", now in microseconds after 1970}, or nil if there is no task or the queue is paused
if redis.call("EXISTS", KEYS[2]) == 1 then return nil end
local id = redis.call("RPOPLPUSH", KEYS[1], KEYS[3])
if not id then return nil end
local task = ARGV[2] .. "t:" .. id
redis.call("HSET", task, "state", "active")
redis.call("HDEL", task, "pending_since")
redis.call("ZADD", KEYS[4], ARGV[1], id)
local known = redis.call("HMGET", task, "msg", "jt")
local msg, wait = known[1], known[2]
if not msg then return nil end
redis.call("SADD", ARGV[2] .. "jt:room", id)
local t = redis.call("TIME")
local now = t[1] .. string.format("%06d", tonumber(t[2]))
if not wait then return {msg, id, "", now} end
local state, rest = string.match(wait, "^(%a) (.*)$")
if state ~= "a" then
  redis.call("HSET", task, "jt", "a " .. rest)
  local cost, limiter = string.match(rest, "^%d+ %d+ %d+ (%d+) %d+ (.*)$")
  if state == "c" then redis.call("ZREM", ARGV[2] .. "jt:called:" .. limiter, cost .. ":" .. id) end
  if state == "p" then redis.call("ZREM", ARGV[2] .. "jt:line:" .. limiter, id) end
end
return {msg, id, wait, now}

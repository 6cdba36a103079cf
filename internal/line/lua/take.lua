-- Takes the next tasks of a queue: asynq's own dequeue, for several at a time, which also says how they have waited so
-- far. From then on they are in no line; the room lists those that have waited until their handlers start, in case their
-- process dies before.
--
-- KEYS[1] to KEYS[4] asynq's pending list, paused mark, active list, leases
-- ARGV[1] when the leases end, in seconds after 1970
-- ARGV[2] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV[3] tasks to take at most
-- Reply: nil if there is no task or the queue is paused, else now in microseconds after 1970, and for each task message, id, wait or ""
if redis.call("EXISTS", KEYS[2]) == 1 then return nil end
local ids = redis.call("RPOP", KEYS[1], ARGV[3])
if not ids or #ids == 0 then return nil end
local t = redis.call("TIME")
local reply, leases, listed, called = {t[1] .. string.format("%06d", tonumber(t[2]))}, {}, {}, {}
for i, id in ipairs(ids) do
  local task = ARGV[2] .. "t:" .. id
  leases[2 * i - 1], leases[2 * i] = ARGV[1], id
  local known = redis.call("HMGET", task, "msg", "jt")
  local msg, wait = known[1], known[2] or ""
  local state, rest = string.match(wait, "^(%a) (.*)$")
  if state and state ~= "a" then
    redis.call("HSET", task, "state", "active", "jt", "a " .. rest)
    listed[#listed + 1] = id
    local cost, limiter = string.match(rest, "^%d+ %d+ %d+ (%d+) %d+ (.*)$")
    if state == "c" then
      called[limiter] = called[limiter] or {}
      table.insert(called[limiter], cost .. ":" .. id)
    end
    if state == "p" then redis.call("ZREM", ARGV[2] .. "jt:line:" .. limiter, id) end
  else
    redis.call("HSET", task, "state", "active")
  end
  redis.call("HDEL", task, "pending_since")
  if msg then
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = msg, id, wait
  end
end
redis.call("LPUSH", KEYS[3], unpack(ids))
redis.call("ZADD", KEYS[4], unpack(leases))
if #listed > 0 then redis.call("SADD", ARGV[2] .. "jt:room", unpack(listed)) end
for limiter, those in pairs(called) do redis.call("ZREM", ARGV[2] .. "jt:called:" .. limiter, unpack(those)) end
if #reply == 1 then return nil end
return reply

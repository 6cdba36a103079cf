-- Takes the next tasks of a queue: asynq's own dequeue, for several at a time, which also says how they have waited so
-- far. From then on they are in no line.
--
-- KEYS[1] to KEYS[4] asynq's pending list, paused mark, active list, leases
-- ARGV[1] when the leases end, in seconds after 1970
-- ARGV[2] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV[3] tasks to take at most
-- ARGV[4] given if the process tells their limits by order.lua: until then, nobody comes first who was taken later (first.lua)
-- Reply: nil if there is no task or the queue is paused, else now in microseconds after 1970, and for each task message, id, wait or "",
--        and, with ARGV[4], when it was first taken
if redis.call("EXISTS", KEYS[2]) == 1 then return nil end
local ids = redis.call("RPOP", KEYS[1], ARGV[3])
if not ids or #ids == 0 then return nil end
activate(ARGV[2], KEYS[3], KEYS[4], ARGV[1], ids)
local t = redis.call("TIME")
local now = t[1] .. string.format("%06d", tonumber(t[2]))
local reply, called, untold = {now}, {}, {}
local latest = ARGV[4] and latest_take(ARGV[2], now)
for _, id in ipairs(ids) do
  local task = ARGV[2] .. "t:" .. id
  local known = redis.pcall("HMGET", task, "msg", "jt") -- nothing, where somebody has written what is no task
  local msg, wait = known[1], known[2] or ""
  if msg then
    local state, since, cost, limiter = string.match(wait, "^(%a) (%d+) %d+ %d+ (%d+) %d+ (.*)$")
    redis.call("HSET", task, "state", "active", "taken", now)
    redis.call("HDEL", task, "pending_since")
    if state and state ~= "a" then redis.call("HSET", task, "jt", "a" .. string.sub(wait, 2)) end
    if state == "p" and redis.pcall("ZREM", ARGV[2] .. "jt:line:" .. limiter, id) == 1 and string.find(limiter, "\t", 1, true) then
      redis.call("HINCRBY", ARGV[2] .. "jt:tasks", string.match(limiter, "^[^\t]*"), -1)
    end
    if state == "c" then
      limiter = string.match(limiter, "^[^\t]*") -- without the tenant
      called[limiter] = called[limiter] or {}
      table.insert(called[limiter], cost .. ":" .. id)
    end
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = msg, id, wait
    if latest then
      reply[n + 4], latest = first_take(task, state and state ~= "a" and since, latest)
      untold[#untold + 1], untold[#untold + 2] = reply[n + 4], id
    end
  else
    redis.call("SREM", ARGV[2] .. "jt:room", id)
  end
end
for limiter, those in pairs(called) do redis.pcall("ZREM", ARGV[2] .. "jt:called:" .. limiter, unpack(those)) end
if #reply == 1 then return nil end
if latest then note_takes(ARGV[2], latest, untold) end
return reply

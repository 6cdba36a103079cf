-- Returns waiting tasks of a line to pending, in their order, behind the tasks that are pending.
--
-- KEYS[1] asynq's pending list, KEYS[2] asynq's retry set
-- KEYS[3] line, KEYS[4] lines: as in park.lua
-- KEYS[5] tenants, KEYS[6] tasks, only for the line of a tenant: see tenants.lua
-- ARGV[1] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV[2] name of the line
-- ARGV[3] tasks to return at most
-- Reply: {tasks returned, tasks left in line}
local t = redis.call("TIME")
local n = 0
for _, id in ipairs(redis.call("ZRANGE", KEYS[3], 0, tonumber(ARGV[3]) - 1)) do
  local task = ARGV[1] .. "t:" .. id
  local known = redis.pcall("HMGET", task, "state", "jt")
  if known.err and string.sub(known.err, 1, 9) ~= "WRONGTYPE" then return known end -- else somebody has written something there that is not a task
  local score = string.match(known[2] or "", "^p %d+ %d+ (%d+) ")
  if known[1] == "retry" and score and tonumber(redis.call("ZSCORE", KEYS[2], id) or "0") == tonumber(score) then
    redis.call("ZREM", KEYS[2], id)
    redis.call("HSET", task, "state", "pending", "pending_since", t[1] .. string.format("%06d000", tonumber(t[2])))
    redis.call("HDEL", task, "jt")
    redis.call("LPUSH", KEYS[1], id)
    n = n + 1
  end
  if redis.call("ZREM", KEYS[3], id) == 1 and KEYS[6] then
    redis.call("HINCRBY", KEYS[6], string.match(ARGV[2], "^[^\t]*"), -1)
  end
end
local left = redis.call("ZCARD", KEYS[3])
local limiter, tenant = string.match(ARGV[2], "^([^\t]*)\t(.*)$")
if left == 0 and tenant then
  redis.call("ZREM", KEYS[5], tenant)
  if redis.call("EXISTS", KEYS[5]) == 0 then
    redis.call("ZREM", KEYS[4], limiter .. "\t")
    redis.call("HDEL", KEYS[6], limiter)
  end
elseif left == 0 then
  redis.call("ZREM", KEYS[4], ARGV[2])
end
return {n, left}

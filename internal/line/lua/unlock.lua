-- Gives the lock of a unique task back the time that it had: park.lua makes it last as long as the task may wait, and asynq
-- does not end the lock of a task that it archives.
--
-- KEYS[1] the task's hash
-- ARGV[1] its id
-- Reply: 1 if the lock was changed, else 0
local known = redis.pcall("HMGET", KEYS[1], "unique_key", "lock", "state")
local lock, ends = known[1], tonumber(known[2] or nil)
if not lock or lock == "" or not ends or known[3] ~= "archived" then return 0 end
redis.call("HDEL", KEYS[1], "lock")
if redis.pcall("GET", lock) ~= ARGV[1] then return 0 end
local t = redis.call("TIME")
local left = ends - tonumber(t[1]) * 1000 - math.floor(tonumber(t[2]) / 1000)
if left <= 0 then return redis.call("DEL", lock) end
return redis.call("PEXPIRE", lock, string.format("%.0f", left))

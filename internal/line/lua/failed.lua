-- Notes that asynq retries or archives a task because it has failed. park.lua makes the lock of a unique task last as long as
-- the task may wait, and asynq does not end the lock of a task that it archives: it gets the time back that it had.
--
-- KEYS[1] the task's hash
-- ARGV[1] its id
-- ARGV[2] 1 if its API did not refuse it this time: earlier refusals do not count any more
-- Reply: OK
local known = redis.pcall("HMGET", KEYS[1], "state", "jt", "unique_key", "lock")
if known[1] ~= "retry" and known[1] ~= "archived" then return redis.status_reply("OK") end
local before, after = string.match(known[2] or "", "^(a %d+ %d+ %d+ %d+) %d+( .*)$")
if ARGV[2] == "1" and before then redis.call("HSET", KEYS[1], "jt", before .. " 0" .. after) end
local lock, ends = known[3], tonumber(known[4] or nil)
if known[1] == "archived" and lock and lock ~= "" and ends then
  redis.call("HDEL", KEYS[1], "lock")
  if redis.pcall("GET", lock) == ARGV[1] then
    local t = redis.call("TIME")
    local left = ends - tonumber(t[1]) * 1000 - math.floor(tonumber(t[2]) / 1000)
    if left > 0 then redis.call("PEXPIRE", lock, string.format("%.0f", left)) else redis.call("DEL", lock) end
  end
end
return redis.status_reply("OK")

-- Puts an active task that only waited back to the head of its queue, where it keeps its arrival: its process drains, or
-- has died. No failure is counted.
--
-- KEYS[1] to KEYS[4] asynq's active list, leases, pending list, hash of the task
-- KEYS[5] room: as in park.lua
-- ARGV[1] id
-- ARGV[2] "listed": only if the room lists it; else ""
-- ARGV[3] first arrival, or "" for that of its last wait, or else now
-- ARGV[4] permits it costs
-- ARGV[5] when its API first refused it, or 0
-- ARGV[6] name of the line it would be in
-- Reply: 1, 0 if it is not listed, or the error NOT FOUND if the task is not active
if ARGV[2] == "listed" and redis.call("SISMEMBER", KEYS[5], ARGV[1]) == 0 then return 0 end
redis.call("SREM", KEYS[5], ARGV[1])
if redis.call("LREM", KEYS[1], 0, ARGV[1]) == 0 then return redis.error_reply("NOT FOUND") end
if redis.call("ZREM", KEYS[2], ARGV[1]) == 0 then return redis.error_reply("NOT FOUND") end
redis.call("RPUSH", KEYS[3], ARGV[1])
local before = redis.call("HGET", KEYS[4], "jt")
local since, cost, refused, limiter = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if ARGV[2] == "listed" and before then
  since, cost, refused, limiter = string.match(before, "^%a (%d+) %d+ %d+ (%d+) (%d+) (.*)$")
end
if since == "" then
  local t = redis.call("TIME")
  since = t[1] .. string.format("%06d", tonumber(t[2]))
end
redis.call("HSET", KEYS[4], "state", "pending", "jt", table.concat({"w", since, "0", "0", cost, refused, limiter}, " "))
return 1

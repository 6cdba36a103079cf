-- Parks an active task: in asynq's retry set, and in a line of its queue. Runs in place of asynq's own script that would
-- have it retried or archived: the task keeps its id, its retries and its lock, and no failure is counted.
--
-- KEYS[1] asynq's hash of the task
-- KEYS[2] to KEYS[4] asynq's active list, leases, retry set
-- KEYS[5] line:  zset, id -> first arrival, in microseconds after 1970
-- KEYS[6] lines: zset, name of a line -> when to look at it next, in milliseconds after 1970
-- KEYS[7] room:  set of the ids that wait in processes
-- KEYS[8], KEYS[9] only for the line of a tenant: see tenants.lua
-- ARGV[1] id
-- ARGV[2] its message with the reason why it waits, or "" to leave the message as it is
-- ARGV[3] first arrival, or "" for now
-- ARGV[4] permits it costs
-- ARGV[5] when its API first refused it, in seconds after 1970; 0: never
-- ARGV[6] name of the line, or "" for a task that waits alone
-- ARGV[7] seconds until asynq's forwarder brings the task back by itself
-- ARGV[8] milliseconds before which nobody takes it from the line: asynq has to be done with this attempt first
-- ARGV[9] milliseconds that its lock lasts at least, if it has one
-- ARGV[10] when this attempt took it from its queue, as take.lua noted it, or "" if that is not known
-- Reply: OK, or the error NOT FOUND if the task is not active, or is so by a later attempt
if ARGV[10] ~= "" and redis.call("HGET", KEYS[1], "taken") ~= ARGV[10] then return redis.error_reply("NOT FOUND") end
if redis.call("LREM", KEYS[2], 0, ARGV[1]) == 0 then return redis.error_reply("NOT FOUND") end
if redis.call("ZREM", KEYS[3], ARGV[1]) == 0 then return redis.error_reply("NOT FOUND") end
local t = redis.call("TIME")
local ms = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local score = string.format("%.0f", math.ceil(tonumber(t[1]) + tonumber(t[2]) / 1000000 + tonumber(ARGV[7])))
local since = ARGV[3]
if since == "" then since = t[1] .. string.format("%06d", tonumber(t[2])) end

redis.call("ZADD", KEYS[4], score, ARGV[1])
local soonest = ms + tonumber(ARGV[8])
local limiter, tenant = string.match(ARGV[6], "^([^\t]*)\t(.*)$")
if tenant then
  if redis.call("ZADD", KEYS[5], since, ARGV[1]) == 1 then redis.call("HINCRBY", KEYS[9], limiter, 1) end
  local first = redis.call("ZRANGE", KEYS[8], 0, 0, "WITHSCORES")
  redis.call("ZADD", KEYS[8], "NX", first[2] or "0", tenant)
  redis.call("ZADD", KEYS[6], "NX", string.format("%.0f", soonest), limiter .. "\t")
elseif ARGV[6] ~= "" then
  redis.call("ZADD", KEYS[5], since, ARGV[1])
  redis.call("ZADD", KEYS[6], "NX", string.format("%.0f", soonest), ARGV[6])
end
redis.call("SREM", KEYS[7], ARGV[1])
redis.call("HDEL", KEYS[1], "taken")
local wait = table.concat({ARGV[6] == "" and "a" or "p", since, string.format("%.0f", soonest), score, ARGV[4], ARGV[5], ARGV[6]}, " ")
if ARGV[2] == "" then
  redis.call("HSET", KEYS[1], "state", "retry", "jt", wait)
else
  redis.call("HSET", KEYS[1], "state", "retry", "jt", wait, "msg", ARGV[2])
end
local lock = redis.call("HGET", KEYS[1], "unique_key")
if lock and lock ~= "" and redis.call("GET", lock) == ARGV[1] and redis.call("PTTL", lock) < tonumber(ARGV[9]) then
  redis.call("PEXPIRE", lock, ARGV[9])
end
return redis.status_reply("OK")

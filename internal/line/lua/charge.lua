-- Notes what tenants of a limiter have got: start-time fair queueing. A charge adds permits/weight to a tenant's finish
-- tag, or to the virtual time if that is larger. The virtual time is the largest start tag that was served. Tags below
-- the virtual time are not kept: those tenants have got less, or nothing for long, and begin at the virtual time.
--
-- KEYS[1] finish: zset, tenant -> finish tag; "" -> the virtual time
-- KEYS[2] weights: hash, tenant -> the weight that an operator has given it
-- ARGV[1] the virtual time is at least this; "" leaves it as it is, and does nothing where it is not known
-- ARGV    for each tenant: its name, permits (negative if it has given them back), its weight in the configuration
-- Reply: OK
local before = redis.call("ZSCORE", KEYS[1], "")
local v = tonumber(before or ARGV[1])
if not v then return redis.status_reply("OK") end
local own = #ARGV > 1 and redis.call("EXISTS", KEYS[2]) == 1
for i = 2, #ARGV, 3 do
  local weight = tonumber(own and redis.call("HGET", KEYS[2], ARGV[i]) or ARGV[i + 2]) or 1
  local finish = math.max(tonumber(redis.call("ZSCORE", KEYS[1], ARGV[i]) or "0"), v) + tonumber(ARGV[i + 1]) / weight
  redis.call("ZADD", KEYS[1], string.format("%.17g", finish), ARGV[i])
end
v = math.max(v, tonumber(ARGV[1]) or v)
if not before or v > tonumber(before) then
  redis.call("ZADD", KEYS[1], string.format("%.17g", v), "")
  redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", "(" .. string.format("%.17g", v))
end
if redis.call("ZCARD", KEYS[1]) > 10000 then -- many tenants that come once: those that have got least begin again
  redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", "(" .. string.format("%.17g", v))
  redis.call("ZREMRANGEBYRANK", KEYS[1], 1, redis.call("ZCARD", KEYS[1]) - 10001)
end
redis.call("PEXPIRE", KEYS[1], 3600000)
return redis.status_reply("OK")

-- Notes what tenants of a limiter have got: start-time fair queueing. A tenant's finish tag grows by permits/weight from the
-- virtual time on, and that is the largest start tag that was served. The tags of tenants that have got less than that, or
-- nothing for long, are not kept: they begin at the virtual time.
--
-- KEYS[1] finish: zset, tenant -> finish tag; "" -> the virtual time
-- KEYS[2] weights: hash, tenant -> the weight that an operator has given it
-- ARGV[1] virtual time at least; "" leaves it as it is, and does nothing where it is not known
-- ARGV    for each tenant: its name, permits (fewer than none: those that it has given back), its weight in the configuration
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
if redis.call("ZCARD", KEYS[1]) > 10000 then -- tenants that come once: those that have got least begin anew
  redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", "(" .. string.format("%.17g", v))
  redis.call("ZREMRANGEBYRANK", KEYS[1], 1, redis.call("ZCARD", KEYS[1]) - 10001)
end
redis.call("PEXPIRE", KEYS[1], 3600000)
return redis.status_reply("OK")

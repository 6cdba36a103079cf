-- Gives a tenant of a limiter a weight. Without one it is 1. What the tenant has got counts as if it had had this weight
-- then: so it does not wait for its turn under the old one.
--
-- KEYS: 1 weights of the limiter, 2 finish tags: see tenants.lua
-- ARGV: 1 tenant, 2 weight
-- reply: 1

local old, v, finish = redis.call('HGET', KEYS[1], ARGV[1]), redis.call('ZSCORE', KEYS[2], ''), redis.call('ZSCORE', KEYS[2], ARGV[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
local had, ahead = tonumber(old or nil), finish and finish - (v or 0) or 0
if not (had and had >= 0.001 and had <= 1000000) then had = 1 end
if ahead > 0 then
  redis.call('ZADD', KEYS[2], string.format('%.17g', (v or 0) + ahead * had / ARGV[2]), ARGV[1])
end
return 1

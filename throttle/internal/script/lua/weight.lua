-- Gives a tenant of a limiter a weight. Without one it is 1.
--
-- KEYS: 1 weights of the limiter: see tenants.lua
-- ARGV: 1 tenant, 2 weight
-- reply: 1

redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1

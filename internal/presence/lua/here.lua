-- Notes that a worker is here, and forgets those that have not said so for too long.
--
-- KEYS[1]  zset: id of a worker -> when it last said that it is here, in milliseconds of Redis's clock
-- ARGV[1]  the worker's id
-- ARGV[2]  for how long that counts, in milliseconds
--
-- Entries that lie ahead are from before the clock was set back.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return now

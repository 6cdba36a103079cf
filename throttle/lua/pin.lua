-- Pins a limiter, so that configuration files leave it alone, or unpins it.
--
-- KEYS: 1 name
-- ARGV: 1 pinned: 1 or 0
-- reply: 1, or -1 if the limiter is not initialized

if redis.call('HEXISTS', KEYS[1], 'rate') == 0 then return -1 end
redis.call('HSET', KEYS[1], 'pinned', ARGV[1])
return 1

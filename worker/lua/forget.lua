-- Drops a called task that will not come back, unless it is in line again.
--
-- KEYS    called, costs, kept: as in park.lua
-- ARGV[1] task
if redis.call("HDEL", KEYS[1], ARGV[1]) > 0 then
  redis.call("HDEL", KEYS[2], ARGV[1])
  redis.call("HDEL", KEYS[3], ARGV[1])
end
return 0

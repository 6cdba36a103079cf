-- Notes when to look at a line again, or that it is empty: unless a task has parked meanwhile, which changes the score.
--
-- KEYS[1] index, as in due.lua
-- ARGV[1] limiter
-- ARGV[2] milliseconds until the next look; negative: the line is empty
-- ARGV[3] the score that due.lua gave it
local t = redis.call("TIME")
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
if tonumber(ARGV[2]) >= 0 then
  return redis.call("ZADD", KEYS[1], string.format("%.0f", now + tonumber(ARGV[2])), ARGV[1])
end
if redis.call("ZSCORE", KEYS[1], ARGV[1]) == ARGV[3] then
  return redis.call("ZREM", KEYS[1], ARGV[1])
end
return 0

-- Finds the lines that are due for a look, and puts each off for a while so that one worker looks at a time.
--
-- KEYS[1] index: zset, limiter -> when to look at its line, in milliseconds after 1970
-- ARGV[1] milliseconds that a look may take: after them another worker looks
-- ARGV[2] lines to find at most
-- Reply: {limiter, index score, ...}: the lines to look at
local t = redis.call("TIME")
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local again = string.format("%.0f", now + tonumber(ARGV[1]))
local reply = {}
for _, name in ipairs(redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", string.format("%.0f", now), "LIMIT", 0, tonumber(ARGV[2]))) do
  redis.call("ZADD", KEYS[1], again, name)
  reply[#reply + 1] = name
  reply[#reply + 1] = redis.call("ZSCORE", KEYS[1], name)
end
return reply

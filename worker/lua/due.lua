-- Finds the lines that are due for a look, and puts each off for a while so that one worker looks at a time.
--
-- KEYS    indexes: a zset for each queue, limiter -> when to look at its line, in milliseconds after 1970
-- ARGV[1] milliseconds that a look may take: after them another worker looks
-- ARGV[2] lines to find at most
-- Reply: {number of the index, limiter, index score, ...}: the lines to look at
local t = redis.call("TIME")
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local again, most = string.format("%.0f", now + tonumber(ARGV[1])), tonumber(ARGV[2])
local reply = {}
for i, index in ipairs(KEYS) do
  for _, name in ipairs(redis.call("ZRANGEBYSCORE", index, "-inf", string.format("%.0f", now), "LIMIT", 0, most)) do
    redis.call("ZADD", index, again, name)
    reply[#reply + 1] = tostring(i)
    reply[#reply + 1] = name
    reply[#reply + 1] = redis.call("ZSCORE", index, name)
    most = most - 1
  end
end
return reply

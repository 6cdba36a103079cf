-- Notes when to look at a limiter's lines again, or that they are empty: unless a task has parked meanwhile, which
-- changes the score.
--
-- KEYS    indexes, as in due.lua, of the queues whose lines these are
-- ARGV[1] limiter
-- ARGV    for each line: milliseconds until the next look, or negative: it is empty; the score that due.lua gave it, or ""
local t = redis.call("TIME")
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
for i, index in ipairs(KEYS) do
  local delay, score = tonumber(ARGV[2 * i]), ARGV[2 * i + 1]
  if delay >= 0 then
    redis.call("ZADD", index, string.format("%.0f", now + delay), ARGV[1])
  elseif redis.call("ZSCORE", index, ARGV[1]) == score then
    redis.call("ZREM", index, ARGV[1])
  end
end
return 0

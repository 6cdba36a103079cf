-- Removes a line of the version before this one from the index of a queue, unless one of that version's workers has
-- parked a task there since: it increases the score when it parks one.
--
-- KEYS[1] index: zset, limiter -> when to visit it
-- ARGV[1] limiter
-- ARGV[2] its score when the line was read
-- Reply: 1 if it is removed, else 0
local score = redis.call("ZSCORE", KEYS[1], ARGV[1])
if not score or tonumber(score) ~= tonumber(ARGV[2]) then return 0 end
return redis.call("ZREM", KEYS[1], ARGV[1])

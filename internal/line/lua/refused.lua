-- Notes that a job's API has told it to try later, and returns whether it is the only such job.
--
-- KEYS[1] refused: hash, task -> "number count until": the number of its latest refusal among all refusals, how many refusals
--         it had, and until when they count, in milliseconds after 1970; "latest" -> the number of the latest refusal of all
-- ARGV[1] task
-- ARGV[2] milliseconds for which a refusal counts
-- ARGV[3] tasks to remember at most: if there are more, all are forgotten
-- Reply: {refusals of this task, 1 if another task was refused since this one's refusal before, else 0}
local refused, task, counts = KEYS[1], ARGV[1], tonumber(ARGV[2])
local t = redis.call("TIME")
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)

local number, count, till = string.match(redis.call("HGET", refused, task) or "", "^(%d+) (%d+) (%d+)$")
if not number or tonumber(till) < now then
  number, count = "0", "0"
  if redis.call("HLEN", refused) > tonumber(ARGV[3]) then
    redis.call("DEL", refused)
  end
end
local latest = redis.call("HINCRBY", refused, "latest", 1)
count = tonumber(count) + 1
redis.call("HSET", refused, task, string.format("%.0f %.0f %.0f", latest, count, now + counts))
if redis.call("PTTL", refused) < counts then
  redis.call("PEXPIRE", refused, counts)
end
return {count, latest == tonumber(number) + 1 and 0 or 1}

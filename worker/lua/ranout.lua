-- Says whether a task that has failed as often as it may is to be archived: it is so for the first attempt that asks.
-- Who brings an archived task back wants it run.
--
-- KEYS[1] asynq's hash of the task
-- ARGV[1] this attempt
-- Reply: 1 if it is to be archived, else 0. The same attempt gets the same answer again.
local first = redis.call("HGET", KEYS[1], "jobthrottle:ran-out")
if not first then
  redis.call("HSET", KEYS[1], "jobthrottle:ran-out", ARGV[1])
  return 1
end
return first == ARGV[1] and 1 or 0

-- Puts a task that asynq was about to archive into its retry set: what asynq's own script does for a task that is to be
-- tried again and did not fail.
--
-- KEYS[1] asynq's hash of the task
-- KEYS[2] asynq's list of active tasks
-- KEYS[3] asynq's zset of leases
-- KEYS[4] asynq's zset of tasks to retry, task -> when, in seconds after 1970
-- ARGV[1] the task's id
-- ARGV[2] its message, with the error of this attempt
-- ARGV[3] when it comes back, in seconds after 1970
-- Reply: OK, or the error NOT FOUND if the task is not active
if redis.call("LREM", KEYS[2], 0, ARGV[1]) == 0 then
  return redis.error_reply("NOT FOUND")
end
if redis.call("ZREM", KEYS[3], ARGV[1]) == 0 then
  return redis.error_reply("NOT FOUND")
end
redis.call("ZADD", KEYS[4], ARGV[3], ARGV[1])
redis.call("HSET", KEYS[1], "msg", ARGV[2], "state", "retry")
return redis.status_reply("OK")

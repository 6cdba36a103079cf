-- Moves tasks that were called to the front of their queue. asynq puts a task that is run at the end, behind all
-- that is pending; but those queue behind the line, so that with many of them nobody would start until all have parked.
--
-- KEYS[1] asynq's list of pending tasks, whose next is its last element
-- ARGV    the ids of the tasks, in the order of their turns
for i = #ARGV, 1, -1 do
  if redis.call("LREM", KEYS[1], 1, ARGV[i]) > 0 then -- from the end where asynq has put it just now
    redis.call("RPUSH", KEYS[1], ARGV[i])
  end
end

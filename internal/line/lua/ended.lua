-- Takes ended tasks out of their orders.
--
-- ARGV[1] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV    for each task and limiter: the id, the name of the limiter
-- Reply: none
for i = 2, #ARGV, 2 do
  local key = ARGV[1] .. "jt:order:" .. ARGV[i + 1]
  local score = redis.call("ZSCORE", key, ARGV[i])
  if score and not waiting(ARGV[1], ARGV[i], score) then redis.call("ZREM", key, ARGV[i]) end
end
return nil

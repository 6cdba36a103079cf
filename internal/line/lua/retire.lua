-- Removes what the version before this one has noted about a queue that shares a limiter, and the rest when no queue is
-- left. The fields of other queues, which only workers of that version may serve, stay as they are.
--
-- KEYS[1] how queues shared the limiter: hash, "last:QUEUE", "looked:QUEUE", "shift:QUEUE", and what all queues share
-- ARGV[1] QUEUE
-- Reply: keys removed
redis.call("HDEL", KEYS[1], "last:" .. ARGV[1], "looked:" .. ARGV[1], "shift:" .. ARGV[1])
for _, field in ipairs(redis.call("HKEYS", KEYS[1])) do
  if string.sub(field, 1, 5) == "last:" then return 0 end
end
return redis.call("DEL", KEYS[1])

-- Takes over tasks that the version before this one has parked. That version had its lines in the slots of the
-- limiters.
--
-- KEYS[1] asynq's retry set
-- KEYS[2] asynq's scheduled set: where that version left tasks whose producer delayed them
-- KEYS[3] line, KEYS[4] lines: as in park.lua
-- ARGV[1] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV[2] name of the line
-- ARGV    for each task: id, since when it waits in microseconds, when asynq brings it back (0: unknown; -1: do not adopt it),
--         permits, seconds until asynq's forwarder brings it back by itself
-- Reply: {tasks adopted, then for each task 1 if it is on its way: a worker has it and may be about to park it, or asynq is
-- about to give it to one; else 0}
local t = redis.call("TIME")
local ms = string.format("%.0f", tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000))
local n, reply = 0, {0}
for i = 3, #ARGV, 5 do
  local id, since, back, cost, delay = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3], ARGV[i + 4]
  local task = ARGV[1] .. "t:" .. id
  local state = redis.call("HGET", task, "state")
  reply[#reply + 1] = (state == "pending" or state == "active") and 1 or 0
  local set = state == "retry" and KEYS[1] or state == "scheduled" and KEYS[2]
  local score = set and redis.call("ZSCORE", set, id)
  if score and (back == 0 or math.abs(tonumber(score) - back) <= 1) then
    score = string.format("%.0f", tonumber(t[1]) + tonumber(delay))
    redis.call("ZREM", set, id)
    redis.call("ZADD", KEYS[1], score, id)
    redis.call("HSET", task, "state", "retry", "jt", table.concat({"p", since, "0", score, cost, "0", ARGV[2]}, " "))
    redis.call("ZADD", KEYS[3], since, id)
    n = n + 1
  end
end
if n > 0 then redis.call("ZADD", KEYS[4], "NX", ms, ARGV[2]) end
reply[1] = n
return reply

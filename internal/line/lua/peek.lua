-- Reads the next tasks of a queue, and leaves them there.
--
-- KEYS[1], KEYS[2] asynq's pending list, paused mark
-- ARGV[1] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV[2] tasks to read at most
-- Reply: nil if there is no task or the queue is paused, else now in microseconds after 1970, and for each task, the next one
--         first: message or "", id, wait or "", mark: by which park.lua knows whether it has moved since
if redis.call("EXISTS", KEYS[2]) == 1 then return nil end
local ids = redis.call("LRANGE", KEYS[1], -ARGV[2], -1)
if #ids == 0 then return nil end
local t = redis.call("TIME")
local reply = {t[1] .. string.format("%06d", tonumber(t[2]))}
for i = #ids, 1, -1 do
  local known, n = redis.pcall("HMGET", ARGV[1] .. "t:" .. ids[i], "state", "msg", "jt", "pending_since"), #reply
  local wait = known[3] or ""
  -- No message, if somebody has written something there that is not a task, or the task is somewhere else, too.
  reply[n + 1], reply[n + 2] = known[1] == "pending" and known[2] or "", ids[i]
  reply[n + 3], reply[n + 4] = wait, (known[4] or "") .. " " .. wait
end
return reply

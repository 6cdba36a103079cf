-- Reads the next tasks of a queue, and leaves them there. One process at a time sorts a queue: the others do not try to
-- park what it parks.
--
-- KEYS[1], KEYS[2] asynq's pending list, paused mark
-- KEYS[3] sorter: until when a process sorts the queue, in milliseconds after 1970, and the process
-- ARGV[1] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV[2] tasks to read at most
-- ARGV[3] tasks to read at most while another process sorts the queue
-- ARGV[4] the process
-- ARGV[5] milliseconds for which it sorts the queue from now on
-- ARGV[6] bytes after which it reads no further message: a task may have megabytes
-- ARGV[7] how many of the next tasks to leave out, because they were read before
-- Reply: nil if there is no task or the queue is paused, else now in microseconds after 1970, 1 if the process sorts the
--         queue or 0 if another does, 1 if it has read fewer tasks because of their bytes or 0, and for each task, the next
--         one first: message or "", id, wait or "", mark: by which park.lua knows whether it has moved since
if redis.call("EXISTS", KEYS[2]) == 1 then return nil end
local t, sorter = redis.call("TIME"), redis.pcall("GET", KEYS[3])
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local ends, process = string.match(type(sorter) == "string" and sorter or "", "^(%d+) (.+)$")
local left = (tonumber(ends) or 0) - now
local sorts = process == ARGV[4] or left <= 0 or left > tonumber(ARGV[5]) -- or the clock was set back
local most = tonumber(ARGV[sorts and 2 or 3])
local ids = most > 0 and redis.call("LRANGE", KEYS[1], -(ARGV[7] + most), -(ARGV[7] + 1)) or {}
if #ids == 0 then return nil end
if sorts then redis.call("SET", KEYS[3], string.format("%.0f ", now + ARGV[5]) .. ARGV[4], "PX", ARGV[5]) end
local reply = {t[1] .. string.format("%06d", tonumber(t[2])), sorts and "1" or "0", "0"}
local bytes = 0
for i = #ids, 1, -1 do
  if bytes >= tonumber(ARGV[6]) then
    reply[3] = "1"
    break
  end
  local known, n = redis.pcall("HMGET", ARGV[1] .. "t:" .. ids[i], "state", "msg", "jt", "pending_since"), #reply
  local wait = known[3] or ""
  -- No message, if somebody has written something there that is not a task, or the task is somewhere else, too.
  reply[n + 1], reply[n + 2] = known[1] == "pending" and known[2] or "", ids[i]
  bytes = bytes + #reply[n + 1]
  reply[n + 3], reply[n + 4] = wait, (known[4] or "") .. " " .. wait
end
return reply

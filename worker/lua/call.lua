-- Calls tasks from the head of a line, as many as their permits cover. A task that was called long ago and has
-- not come back is in line again, at its place.
--
-- KEYS    as in park.lua
-- ARGV[1] permits that come due: tasks are called until theirs reach it, those called before included
-- ARGV[2] tasks to call at most
-- ARGV[3] milliseconds after which a called task is in line again
-- Reply: {tasks left in line, tasks called before and not back, task, task, ...}
local line, called, clock, costs, since = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local budget, most, patience = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local t = redis.call("TIME")
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)

local function queueOf(task)
  return (string.gsub(string.match(task, "^[^:]*"), "%%(%x%x)", function(hex)
    return string.char(tonumber(hex, 16))
  end))
end

local out = 0
local due = 0
local before = redis.call("HGETALL", called)
for i = 1, #before, 2 do
  local task = before[i]
  local place, at = string.match(before[i + 1], "^(%S+) (%d+)$")
  if now - tonumber(at) > patience then
    redis.call("HDEL", called, task)
    redis.call("ZADD", line, place, task)
    redis.call("HINCRBY", clock, "count:" .. queueOf(task), 1)
  else
    out = out + 1
    due = due + tonumber(redis.call("HGET", costs, task) or "1")
  end
end

local reply = {"", tostring(out)}
while due < budget and #reply - 2 < most do
  local head = redis.call("ZPOPMIN", line)
  if #head == 0 then
    break
  end
  local task, place = head[1], head[2]
  redis.call("HSET", called, task, place .. " " .. string.format("%.0f", now))
  redis.call("HSET", clock, "now", place)
  redis.call("HINCRBY", clock, "count:" .. queueOf(task), -1)
  due = due + tonumber(redis.call("HGET", costs, task) or "1")
  reply[#reply + 1] = task
end
local left = redis.call("ZCARD", line)
reply[1] = tostring(left)
if left == 0 and redis.call("HLEN", called) == 0 then
  redis.call("DEL", clock, costs, since)
end
return reply

-- Puts tasks that were taken from a queue into the orders of the limits whose only slot they need, and returns which of
-- them come first there. A task that was in an order before keeps its position. As long as the limits of some task are
-- not told, no task that was taken after it comes first.
--
-- KEYS[1] untold, as in first.lua
-- ARGV[1] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV[2] milliseconds that an order is kept
-- ARGV    for each task: its id, when it was first taken, number of limits n, n times the name of a limiter
-- Reply: for each task 0 if it comes first in all of its orders, the number of the first in which it does not, or -1 if one
--        taken before it is not told
local prefix, keep = ARGV[1], ARGV[2]

local tasks, i = {}, 3
while i <= #ARGV do
  local task = { id = ARGV[i], first = ARGV[i + 1] }
  local n = tonumber(ARGV[i + 2])
  for k = 1, n do task[k] = ARGV[i + 2 + k] end
  if n > 0 and of(prefix, task.id, "first")[1] == task.first then -- else the task has gone
    for _, limiter in ipairs(task) do
      redis.call("ZADD", prefix .. "jt:order:" .. limiter, task.first, task.id)
      redis.call("PEXPIRE", prefix .. "jt:order:" .. limiter, keep)
    end
  end
  redis.call("ZREM", KEYS[1], task.id)
  tasks[#tasks + 1], i = task, i + 3 + n
end

local reply, _, before = {}, head(prefix, KEYS[1], waiting)
for _, task in ipairs(tasks) do
  local behind = 0
  if #task > 0 and before and before < tonumber(task.first) then behind = -1 end
  for k, limiter in ipairs(task) do
    if behind == 0 and first(prefix, limiter) ~= task.id then behind = k end
  end
  reply[#reply + 1] = behind
end
return reply

-- Puts tasks that were taken from a queue into the orders of the limits whose only slot they need, and says which of them
-- come first there. A task that was in an order before keeps its place. As long as there is a task of which nobody has told
-- which limits it needs, none comes first that was taken later.
--
-- KEYS[1] unread, as in first.lua
-- ARGV[1] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV[2] milliseconds that an order is kept
-- ARGV[3] seconds after which a process that has a task, and has not told its limits, will not do so
-- ARGV    for each task: its id, its arrival, in microseconds after 1970, number of limits n, n times the name of a limiter
-- Reply: for each task: when it was first taken, then 0 if it comes first in all of its orders, the number of the first in
--        which it does not, or -1 if one taken before it is not told
local prefix, keep = ARGV[1], ARGV[2]
local now = tonumber(redis.call("TIME")[1])

-- untold returns when the earliest task was taken of which nobody has told the limits.
local function untold()
  for _ = 1, 1000 do
    local head = redis.call("ZRANGE", KEYS[1], 0, 0, "WITHSCORES")
    if not head[1] then return nil end
    local known = of(prefix, head[1], "state", "taken")
    local age = now - (tonumber(known[2] or nil) or 0) / 1000000
    if known[1] == "pending" or known[1] == "active" and age < tonumber(ARGV[3]) and age > -tonumber(ARGV[3]) then return tonumber(head[2]) end
    redis.call("ZREM", KEYS[1], head[1])
  end
end

local tasks, i = {}, 4
while i <= #ARGV do
  local task = { id = ARGV[i], first = ARGV[i + 1] }
  local n = tonumber(ARGV[i + 2])
  for k = 1, n do task[k] = ARGV[i + 2 + k] end
  if n > 0 then
    local known = of(prefix, task.id, "state", "first")
    if known[1] then
      if known[2] then task.first = known[2] else redis.call("HSET", prefix .. "t:" .. task.id, "first", task.first) end
      for _, limiter in ipairs(task) do
        redis.call("ZADD", prefix .. "jt:order:" .. limiter, task.first, task.id)
        redis.call("PEXPIRE", prefix .. "jt:order:" .. limiter, keep)
      end
    end
  end
  redis.call("ZREM", KEYS[1], task.id)
  tasks[#tasks + 1], i = task, i + 3 + n
end

local reply, before = {}, untold()
for _, task in ipairs(tasks) do
  local behind = 0
  if #task > 0 and before and before < tonumber(task.first) then behind = -1 end
  for k, limiter in ipairs(task) do
    if behind == 0 and first(prefix, limiter) ~= task.id then behind = k end
  end
  reply[#reply + 1], reply[#reply + 2] = task.first, behind
end
return reply

-- Calls tasks from the lines of a limiter, as many as the permits cover that come due. They go to the tasks that come
-- first, by place, in the lines of all queues that somebody looks after; but only those of the caller's own queues are
-- called, and the others left to whoever runs theirs. A queue that nobody has looked after for a while gets nothing:
-- nobody runs it. When somebody does again, its places are shifted to where the others are, so that it has no more than
-- its share from then on. A task that was called long ago and has not come back is in line again, at its place.
--
-- KEYS[1] to KEYS[4] called, clock, costs, kept: as in park.lua
-- KEYS[5] what the names of the lines begin with, before QUEUE
-- ARGV[1] permits that come due: tasks are called until theirs reach it, those called before included
-- ARGV[2] tasks to call at most
-- ARGV[3] milliseconds after which a called task is in line again
-- ARGV[4] milliseconds after which a queue that nobody has looked after counts for nothing
-- ARGV    the caller's queues, escaped as in the names of tasks
-- Reply: {tasks left in line or on their way, for each of these queues, ..., task, kept or "", ...}
local called, clock, costs, kept, prefix = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local budget, most, patience, absence = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local t = redis.call("TIME")
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local ms = string.format("%.0f", now)
local fields = redis.call("HGETALL", clock)
local known = {}
for i = 1, #fields, 2 do known[fields[i]] = fields[i + 1] end
local latest, changes = tonumber(known["now"] or "0"), {}
local function note(field, value)
  changes[#changes + 1] = field
  changes[#changes + 1] = value
end

local lines, all = {}, {}
local function lineOf(queue)
  local l = lines[queue]
  if not l then
    l = { queue = queue, key = prefix .. queue, shift = tonumber(known["shift:" .. queue] or "0"), out = 0, read = 0, taken = 0 }
    l.live = now - tonumber(known["looked:" .. queue] or "0") <= absence
    lines[queue], all[#all + 1] = l, l
  end
  return l
end
for field in pairs(known) do
  local queue = string.match(field, "^last:(.*)$")
  if queue then lineOf(queue) end
end

for i = 5, #ARGV do
  local l = lineOf(ARGV[i])
  local head = redis.call("ZRANGE", l.key, 0, 0, "WITHSCORES")
  if not l.live and head[2] and tonumber(head[2]) + l.shift < latest then
    l.shift = latest - tonumber(head[2])
    note("shift:" .. l.queue, string.format("%.17g", l.shift))
  end
  l.own, l.live = true, true
  if head[2] then note("looked:" .. l.queue, ms) end
end

local priced = redis.call("HLEN", costs) > 0
local function costOf(task)
  return priced and tonumber(redis.call("HGET", costs, task) or "1") or 1
end

local due = 0
local before = redis.call("HGETALL", called)
for i = 1, #before, 2 do
  local task = before[i]
  local place, at = string.match(before[i + 1], "^(%S+) (%d+)$")
  local l = lineOf(string.match(task, "^[^:]*"))
  if now - tonumber(at) > patience then
    redis.call("HDEL", called, task)
    redis.call("ZADD", l.key, place, task)
    if not known["last:" .. l.queue] then note("last:" .. l.queue, place) end
  else
    l.out = l.out + 1
    if l.live then due = due + costOf(task) end
  end
end

local function head(l) -- the first task of the line that is not taken yet, its place among all lines, and in its own
  if not l.heads or l.at > #l.heads then
    local page = math.min(math.max(math.ceil(budget - due), 1), 50)
    l.heads, l.at = redis.call("ZRANGE", l.key, l.read, l.read + page - 1, "WITHSCORES"), 1
    l.read = l.read + page
  end
  local place = l.heads[l.at + 1]
  return l.heads[l.at], place and tonumber(place) + l.shift, place
end

local reply, steps = {}, 0
for i = 5, #ARGV do reply[i - 4] = "" end
while due < budget and steps < most do
  local first, task, at, place
  for _, l in ipairs(all) do
    if l.live then
      local ltask, lat, lplace = head(l)
      if ltask and (not at or lat < at) then first, task, at, place = l, ltask, lat, lplace end
    end
  end
  if not task then break end
  first.at = first.at + 2
  steps = steps + 1
  due = due + costOf(task)
  if first.own then
    redis.call("HSET", called, task, place .. " " .. ms)
    first.taken, latest = first.taken + 1, math.max(latest, at)
    reply[#reply + 1] = task
    reply[#reply + 1] = redis.call("HGET", kept, task) or ""
  end
end

local left, live = 0, 0
for _, l in ipairs(all) do
  if l.taken > 0 then redis.call("ZREMRANGEBYRANK", l.key, 0, l.taken - 1) end
  l.left = redis.call("ZCARD", l.key)
  left = left + l.left
  if l.live then live = live + l.left end
end
for i = 5, #ARGV do
  local l = lines[ARGV[i]]
  reply[i - 4] = tostring(l.left + l.out + l.taken)
end
if left == 0 and redis.call("EXISTS", called) == 0 then
  redis.call("DEL", clock, costs, kept)
  return reply
end
note("now", string.format("%.17g", latest))
note("live", tostring(live))
redis.call("HSET", clock, unpack(changes))
return reply

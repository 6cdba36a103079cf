-- Shares the permits of a limiter that come due among the queues that are in line for it, by their weights. The queue
-- with the smallest tag is next, and its tag grows by permits/weight: start-time fair queueing. A queue counts as long
-- as a process that can run its tasks visits its line. A queue that comes back does not get what it missed.
--
-- Permits are given for whole tasks. If they are too few for a task of the queue that is next, nobody gets them: they
-- are kept for that queue.
--
-- A visitor is full if it has capacity for fewer tasks than there are permits. Other processes that have capacity for tasks of
-- the queue visit it at once. So if all visitors were full for a while, nothing is kept for the queue, and it does not get later
-- what it could not use. Processes that serve the queue themselves keep permits for it all the same.
--
-- KEYS[1] queues: hash, QUEUE -> "visit weight tag out left cost": when it was last visited, in milliseconds after 1970, its
--         weight, its tag, permits of its tasks on their way, permits of its tasks in line, permits that one task costs;
--         "" -> the largest tag that was served. If its last visitor was full, "left" has decimals: for how many seconds all
--         had been full by then
-- KEYS[2] if each process has permits of its own: the same for the caller's process, by which they are shared. Then KEYS[1] only
--         says which queues are visited
-- ARGV[1] permits that come due
-- ARGV[2] milliseconds after its last visit after which a queue does not count
-- ARGV[3] how many tasks of its queues the caller can take
-- ARGV[4] when no more than so many permits are left, no task gets them
-- ARGV[5] 1 if the permits that come due are for more tasks than the caller can take
-- ARGV[6] milliseconds after which nothing is kept for a queue whose visitors are all full
-- ARGV[7] how many queues the caller serves; their names follow
-- ARGV    for each of the caller's queues that it visits: its name, weight, permits in line, permits on their way, permits that a
--         task costs, permits that it got before and has not used
-- Reply: permits for each of the queues that it visits
local t = redis.call("TIME")
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local permits, absence, capacity, kept = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local shared, visits = KEYS[2] or KEYS[1], 8 + tonumber(ARGV[7])
local all, queues, served, gone = redis.call("HGETALL", shared), {}, 0, {}
for i = 1, #all, 2 do
  if all[i] == "" then
    served = tonumber(all[i + 1])
  else
    local visit, weight, tag, out, left, cost = string.match(all[i + 1], "^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$")
    local since = left and string.match(left, "%.(%d%d%d)$")
    if visit and math.abs(now - tonumber(visit)) <= absence then
      queues[all[i]] = { weight = tonumber(weight), tag = tonumber(tag), out = tonumber(out), left = math.floor(tonumber(left)),
        cost = tonumber(cost), got = 0, visit = visit, since = since and tonumber(since) }
    else
      gone[#gone + 1] = all[i]
    end
  end
end
if #gone > 0 then redis.call("HDEL", shared, unpack(gone)) end

local function note(visit, q) -- without exponents, which not every Lua reads
  local since = q.since and string.format(".%03d", math.max(math.min(q.since, 999), 1)) or ""
  return string.format("%s %.17g %.15f %.0f %.0f%s %.0f", visit, q.weight, q.tag, q.out + q.got, q.left - q.got, since, q.cost)
end

-- Only differences of tags count. They stay small, because a large tag would not notice a permit of a queue of weight 1e12.
if served > 1000 then
  local notes = {}
  for name, q in pairs(queues) do
    q.tag = q.tag - served
    notes[#notes + 1], notes[#notes + 2] = name, note(q.visit, q)
  end
  if #notes > 0 then redis.call("HSET", shared, unpack(notes)) end
  served = 0
end
local serves, lowest, behind = {}, math.huge, 0
for i = 8, visits - 1 do serves[ARGV[i]] = true end
for name, q in pairs(queues) do
  q.lasts = q.since and q.since + math.abs(now - tonumber(q.visit)) -- for how many milliseconds all its visitors have been full
  q.full = q.since and q.lasts >= tonumber(ARGV[6])
  if q.full and not serves[name] then q.left = 0 end
end
for i = visits, #ARGV, 6 do
  local q = queues[ARGV[i]] or { tag = served, got = 0 }
  q.own, q.weight, q.left, q.out = true, tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  q.cost, q.unused = tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5])
  queues[ARGV[i]] = q
  if q.full then lowest, behind = math.min(lowest, q.tag), math.max(behind, q.cost / q.weight) end
end
for _, q in pairs(queues) do
  permits = permits - q.out
  if q.own and q.full then q.tag = math.max(q.tag, served - behind + math.min(q.tag - lowest, behind)) end -- in their order
  if q.own then q.tag = q.tag - q.unused / q.weight end
end

local names = {}
for name in pairs(queues) do names[#names + 1] = name end
table.sort(names)
for _ = 1, 5000 do
  local first, own -- own: one of the caller's queues may still get permits; if none may, the rest does not matter here
  for _, name in ipairs(names) do
    local q = queues[name]
    if q.left > q.got and (not q.own or capacity > 0) then
      own = own or q.own
      if not first or q.tag < first.tag then first = q end
    end
  end
  if not own or first.cost > permits or permits <= kept then break end
  if first.own then capacity, served = capacity - 1, math.max(served, first.tag) end
  permits, first.got, first.tag = permits - first.cost, first.got + first.cost, first.tag + first.cost / first.weight
end
local reply, notes = {}, {"", string.format("%.15f", served)}
for i = visits, #ARGV, 6 do
  local q = queues[ARGV[i]]
  local full = q.since -- if it only gives something back
  if q.unused == 0 then full = ARGV[5] == "1" and capacity <= 0 end
  q.since = full and (q.lasts or 0) or nil
  reply[#reply + 1] = q.got
  notes[#notes + 1], notes[#notes + 2] = ARGV[i], note(string.format("%.0f", now), q)
end
for _, key in ipairs(KEYS) do
  redis.call("HSET", key, unpack(notes))
  redis.call("PEXPIRE", key, 60000)
end
return reply

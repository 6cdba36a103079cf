-- Calls tasks from lines of a queue, in their order: moves them from asynq's retry set to the process that asks, as if it had
-- taken them from the queue, as many as it has places for, and the others to the head of asynq's pending list.
-- A line holds only names: one whose task is not the one that parked (it was deleted, run by hand, enqueued again, or
-- fails meanwhile) leaves the line, and nothing else happens.
--
-- KEYS[1] to KEYS[3] asynq's paused mark, pending list, retry set
-- KEYS[4] lines, KEYS[5] blocked: as in due.lua
-- KEYS[6], KEYS[7] asynq's active list, leases
-- ARGV[1] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV[2] milliseconds that the keys of called tasks are kept
-- ARGV[3] tasks that the process takes at most
-- ARGV[4] when the leases of those end, in seconds after 1970
-- ARGV[5] "orders": as in take.lua; else ""
-- ARGV    for each line: its name, permits to call tasks for, milliseconds until the next look, where to begin, from 0 to 1; -1:
--         at the head, and nobody is called before one there that came and parked just now; -2: only who comes first in the order
--         of the limit in flight, as in first.lua. Of the line of a tenant, in place of where to begin: its
--         start tag and its weight
-- Reply: for each line: tasks called, permits that they cost, tasks left in line; tenants left of a line that they share,
--         which comes after the lines of its tenants, with no permits. Then, as take.lua, now and those that the process takes
local paused = redis.call("EXISTS", KEYS[1]) == 1
local t = redis.call("TIME")
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local ms = string.format("%.0f", now)
local reply, brought = {}, {}
for i = 6, #ARGV, 4 do
  local name, permits, n, spent = ARGV[i], tonumber(ARGV[i + 1]), 0, 0
  local shared, tenant = string.match(name, "^([^\t]*)\t(.+)$") -- the line of a tenant: see tenants.lua
  local line = ARGV[1] .. "jt:line:" .. name
  local at, steps, gone, from, tag, weight = 0, 0, 0, 0, nil, nil
  if shared then
    tag, weight = string.match(ARGV[i + 3], "^(%S+) (%S+)$")
  else
    from = tonumber(ARGV[i + 3])
  end
  if from > 0 then at = math.floor(redis.call("ZCARD", line) * from) end
  while permits > 0 and not paused and steps < 1000 do
    local only = from == -2 and first(ARGV[1], string.match(name, "^!in_flight:(.*)$"))
    if only and not redis.call("ZSCORE", line, only) then break end -- it is somewhere else
    local heads = only and {only} or redis.call("ZRANGE", line, at, at + math.min(math.ceil(permits), 100) - 1)
    if #heads == 0 then break end
    local off, out = {}, {} -- the line, the retry set
    for _, id in ipairs(heads) do
      steps = steps + 1
      local known = redis.pcall("HMGET", ARGV[1] .. "t:" .. id, "state", "jt", "msg")
      if known.err and string.sub(known.err, 1, 9) ~= "WRONGTYPE" then -- else somebody has written what is no task
        if #brought == 0 then return known end
        permits = 0
        break
      end
      local since, soonest, score, cost, refused, limiter = string.match(known[2] or "", "^p (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$")
      if known[1] ~= "retry" or limiter ~= name or tonumber(redis.call("ZSCORE", KEYS[3], id) or "0") ~= tonumber(score) then
        off[#off + 1] = id
      elseif permits <= 0 then
        break
      elseif tonumber(soonest) > now and tonumber(soonest) < now + 2000 then
        if only or from < 0 and tonumber(soonest) - tonumber(since) / 1000 < 2000 then
          permits = 0
          break
        end
        at = at + 1
      else
        off[#off + 1], out[#out + 1] = id, id
        brought[#brought + 1] = {
          id = id, msg = known[3] or "", came = #brought, start = shared and tonumber(tag) + spent / tonumber(weight) or -1, since = since, cost = cost,
          wait = table.concat({" " .. since, soonest, "0", cost, refused, limiter}, " "), called = ARGV[1] .. "jt:called:" .. (shared or name)}
        n, permits, spent = n + 1, permits - tonumber(cost), spent + tonumber(cost)
      end
    end
    if #off > 0 then gone = gone + redis.call("ZREM", line, unpack(off)) end
    if #out > 0 then redis.call("ZREM", KEYS[3], unpack(out)) end
  end
  local all = string.match(name, "^(.*)\t$") -- the limiter, in the line that its tenants share
  local left = redis.call("ZCARD", all and ARGV[1] .. "jt:tenants:" .. all or line)
  local lines = string.sub(name, 1, 1) == "!" and KEYS[5] or KEYS[4]
  if shared then
    if gone > 0 then redis.call("HINCRBY", ARGV[1] .. "jt:tasks", shared, -gone) end
    if left > 0 then
      redis.call("ZADD", ARGV[1] .. "jt:tenants:" .. shared, string.format("%.17g", tonumber(tag) + spent / tonumber(weight)), tenant)
    else
      redis.call("ZREM", ARGV[1] .. "jt:tenants:" .. shared, tenant)
    end
  elseif left > 0 then
    redis.call("ZADD", lines, string.format("%.0f", now + tonumber(ARGV[i + 2])), name)
  else
    redis.call("ZREM", lines, name)
    if all then redis.call("HDEL", ARGV[1] .. "jt:tasks", all) end
  end
  reply[#reply + 1] = n
  reply[#reply + 1] = spent
  reply[#reply + 1] = left
end
if #brought == 0 then return reply end
table.sort(brought, function(a, b) -- tenants take turns
  if a.start ~= b.start then return a.start < b.start end
  return a.came < b.came
end)

local us, taken, untold = t[1] .. string.format("%06d", tonumber(t[2])), {}, {}
local latest = ARGV[5] ~= "" and latest_take(ARGV[1], us)
for i = 1, math.min(#brought, tonumber(ARGV[3])) do
  local b = brought[i]
  local task = ARGV[1] .. "t:" .. b.id
  if i == 1 then reply[#reply + 1] = us end
  redis.call("HSET", task, "state", "active", "taken", us, "jt", "a" .. b.wait)
  taken[i] = b.id
  reply[#reply + 1] = b.msg
  reply[#reply + 1] = b.id
  reply[#reply + 1] = "c" .. b.wait
  if latest then
    reply[#reply + 1], latest = first_take(task, b.since, latest)
    untold[2 * i - 1], untold[2 * i] = reply[#reply], b.id
  end
end
if #taken > 0 then activate(ARGV[1], KEYS[6], KEYS[7], ARGV[4], taken) end
if #untold > 0 then note_takes(ARGV[1], latest, untold) end
for i = #brought, #taken + 1, -1 do
  local b = brought[i]
  redis.call("HSET", ARGV[1] .. "t:" .. b.id, "state", "pending", "pending_since", us .. "000", "jt", "c" .. b.wait)
  redis.call("ZADD", b.called, ms, b.cost .. ":" .. b.id)
  redis.call("PEXPIRE", b.called, ARGV[2])
  redis.call("RPUSH", KEYS[2], b.id)
end
return reply

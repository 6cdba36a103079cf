-- Calls tasks from lines of a queue: moves them from asynq's retry set to the head of its pending list, in their order and
-- behind those that were called before.
-- A line holds only ids. If the task of an id is not the one that parked (it was deleted, run by hand, enqueued again,
-- or has failed since), the id leaves the line, and nothing else happens.
--
-- KEYS[1] to KEYS[3] asynq's paused mark, pending list, retry set
-- KEYS[4] lines, KEYS[5] blocked: as in due.lua
-- ARGV[1] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV[2] milliseconds that the keys of called tasks are kept
-- ARGV[3] milliseconds after which a line of a limiter is visited again at the latest if it has tasks that could not be called
--         although there were permits: they came just now
-- ARGV    for each line: its name, permits to call tasks for, milliseconds until the next visit (-1: as it is), where to begin:
--         from 0 to 1; -1: at the head, and no task is called before one there that parked just now, and came in the last 2 s or
--         waits for max_in_flight;
--         -2: only the task that comes first in the order of the limit in flight, as in first.lua.
--         For the line of a tenant, in place of where to begin: its start tag and its weight
-- Reply: for each line: tasks called, permits that they cost, tasks left in line. A line that tenants share comes after the
--         lines of its tenants and has no permits; for it, the last number is the tenants left
local paused = redis.call("EXISTS", KEYS[1]) == 1
local t = redis.call("TIME")
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local ms, ns = string.format("%.0f", now), t[1] .. string.format("%06d000", tonumber(t[2]))
local reply, brought, starts, unused, failed = {}, {}, {}, {}, nil

-- Tasks that were called before, or came back from a process, and that nobody has taken yet, stay ahead of these. If
-- there are more than leading counts for certain, no others are called: they would come before some of them.
local ahead = leading(KEYS[2], function(id)
  local wait = redis.pcall("HGET", ARGV[1] .. "t:" .. id, "jt")
  return type(wait) == "string" and string.find(wait, "^[cw] ") ~= nil
end)
local rests = paused or ahead >= 1000

-- visit handles the line at ARGV[i].
local function visit(i)
  local name, permits, n, used = ARGV[i], tonumber(ARGV[i + 1]), 0, 0
  local shared, tenant = string.match(name, "^([^\t]*)\t(.+)$") -- the line of a tenant: see tenants.lua
  local line, called = ARGV[1] .. "jt:line:" .. name, ARGV[1] .. "jt:called:" .. (shared or name)
  local at, steps, gone, from, tag, weight = 0, 0, 0, 0, nil, nil
  if shared then
    tag, weight = string.match(ARGV[i + 3], "^(%S+) (%S+)$")
  else
    from = tonumber(ARGV[i + 3])
  end
  local ours = string.sub(name, 1, 15) == "!max_in_flight:" -- those that wait in a process leave it in the reverse order
  if from > 0 then at = math.floor(redis.call("ZCARD", line) * from) end
  while permits > 0 and not rests and steps < 1000 do
    local only = from == -2 and first(ARGV[1], string.match(name, "^!in_flight:(.*)$"))
    if only and not redis.call("ZSCORE", line, only) then break end -- the task is somewhere else
    local heads = only and {only} or redis.call("ZRANGE", line, at, at + math.min(math.ceil(permits), 100) - 1)
    if #heads == 0 then break end
    local out, ids, onWay = {}, {}, {}
    for _, id in ipairs(heads) do
      steps = steps + 1
      local task = ARGV[1] .. "t:" .. id
      local known = redis.pcall("HMGET", task, "state", "jt")
      if known.err and string.sub(known.err, 1, 9) ~= "WRONGTYPE" then -- else somebody has written something there that is not a task
        failed, permits = known, 0
        break
      end
      local wait = known[2] or ""
      local since, soonest, score, cost, limiter = string.match(wait, "^p (%d+) (%d+) (%d+) (%d+) %d+ (.*)$")
      if known[1] ~= "retry" or limiter ~= name or tonumber(redis.call("ZSCORE", KEYS[3], id) or "0") ~= tonumber(score) then
        out[#out + 1] = id
      elseif permits <= 0 then
        break
      elseif tonumber(soonest) > now and tonumber(soonest) < now + 2000 then
        if only or from < 0 and (ours or tonumber(soonest) - tonumber(since) / 1000 < 2000) then
          permits = 0
          break
        end
        at = at + 1
      else
        redis.call("HSET", task, "state", "pending", "pending_since", ns, "jt", "c" .. string.sub(wait, 2))
        out[#out + 1], ids[#ids + 1] = id, id
        onWay[2 * #ids - 1], onWay[2 * #ids] = ms, cost .. ":" .. id
        if shared then starts[id] = tonumber(tag) + used / tonumber(weight) end
        brought[#brought + 1], n, permits, used = id, n + 1, permits - tonumber(cost), used + tonumber(cost)
      end
    end
    if #out > 0 then gone = gone + redis.call("ZREM", line, unpack(out)) end
    if #ids > 0 then
      redis.call("ZREM", KEYS[3], unpack(ids))
      redis.pcall("ZADD", called, unpack(onWay))
    end
  end
  if n > 0 then redis.call("PEXPIRE", called, ARGV[2]) end
  local all = string.match(name, "^(.*)\t$") -- the limiter, if this is the line that its tenants share
  local left = redis.call("ZCARD", all and ARGV[1] .. "jt:tenants:" .. all or line)
  local lines, after = string.sub(name, 1, 1) == "!" and KEYS[5] or KEYS[4], tonumber(ARGV[i + 2])
  if shared and permits > 0 then unused[shared] = true end
  if lines == KEYS[4] and (permits > 0 or all and unused[all]) then after = math.min(after, tonumber(ARGV[3])) end
  if shared then
    if gone > 0 then redis.call("HINCRBY", ARGV[1] .. "jt:tasks", shared, -gone) end
    if left > 0 then
      redis.call("ZADD", ARGV[1] .. "jt:tenants:" .. shared, string.format("%.17g", tonumber(tag) + used / tonumber(weight)), tenant)
    else
      redis.call("ZREM", ARGV[1] .. "jt:tenants:" .. shared, tenant)
    end
  elseif left > 0 and after < 0 then
    redis.call("ZADD", lines, "NX", ms, name)
  elseif left > 0 then
    redis.call("ZADD", lines, string.format("%.0f", now + after), name)
  else
    redis.call("ZREM", lines, name)
    if all then redis.call("HDEL", ARGV[1] .. "jt:tasks", all) end
  end
  reply[#reply + 1] = n
  reply[#reply + 1] = used
  reply[#reply + 1] = left
end
for i = 4, #ARGV, 4 do
  local done, err = pcall(visit, i)
  if not done then -- somebody has written something there that is not what it should be
    failed = type(err) == "table" and err or redis.error_reply(tostring(err))
  end
end
if next(starts) then -- tenants take turns
  local came = {}
  for i, id in ipairs(brought) do came[id] = i end
  table.sort(brought, function(a, b)
    local sa, sb = starts[a] or -1, starts[b] or -1
    if sa ~= sb then return sa < sb end
    return came[a] < came[b]
  end)
end
if #brought > 0 then behind(KEYS[2], ahead, brought) end
return failed or reply -- what was begun is done

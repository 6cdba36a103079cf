-- Takes the next tasks of a queue: asynq's own dequeue, for several tasks at a time, which also returns how they have
-- waited so far. From then on the tasks are in no line. The room lists each of them until it begins to run, parks, or
-- goes back, in case its process dies before that. The time of the take is noted: if the answer to a later call for
-- this attempt is lost and the call is repeated, it does not move the task in a later attempt.
--
-- If the answer to a call is lost, the caller makes it again, under the same number, and gets the same tasks.
--
-- KEYS[1] to KEYS[4] asynq's pending list, paused mark, active list, leases
-- KEYS[5] took: "number now tasks" of the caller's latest call that took tasks; each task is "LENGTH:STATE" and its id, where
--         STATE is the first letter of how it had waited, or "-"
-- ARGV[1] when the leases end, in seconds after 1970
-- ARGV[2] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV[3] tasks to take at most
-- ARGV[4] "orders" if the process tells Redis their limits with order.lua: until then, no task that was taken later comes first
--         (first.lua)
-- ARGV[5] number of the call, or "" for a call that is not made again
-- ARGV[6] milliseconds for which its tasks are remembered
-- ARGV[7] milliseconds for which called tasks count as asking their limiter, unless it has answered
-- Reply: nil if there is no task or the queue is paused, else now in microseconds after 1970, and for each task message, id, wait
--        or "", and, with ARGV[4], when it was first taken
local no, at, tasks -- of the call before
if ARGV[5] ~= "" then
  local took = redis.pcall("GET", KEYS[5])
  no, at, tasks = string.match(type(took) == "string" and took or "", "^(%d+) (%d+) (.*)$")
end

-- again returns what the caller took by a call of this number before, as far as it still has these tasks.
local function again()
  local reply, from = {at}, 1
  while from <= #tasks do
    local length, state, rest = string.match(tasks, "^(%d+):(.)()", from)
    local id = string.sub(tasks, rest, rest + length - 1)
    from = rest + length
    local known = redis.pcall("HMGET", ARGV[2] .. "t:" .. id, "msg", "jt", "state", "taken", "first")
    if known[1] and known[3] == "active" and known[4] == at then
      redis.pcall("ZADD", KEYS[4], "XX", "GT", ARGV[1], id) -- not while Redis is full: then the lease is shorter
      local n = #reply
      reply[n + 1], reply[n + 2], reply[n + 3] = known[1], id, state == "-" and (known[2] or "") or state .. string.sub(known[2] or "", 2)
      if ARGV[4] == "orders" then reply[n + 4] = known[5] or "" end
    end
  end
  return #reply > 1 and reply or nil
end

if no and no == ARGV[5] then return again() end
if no and tonumber(no) > tonumber(ARGV[5]) then return nil end -- this call comes late: its answer was not waited for
local ids = redis.call("EXISTS", KEYS[2]) == 0 and redis.call("RPOP", KEYS[1], ARGV[3])
if not ids or #ids == 0 then
  if no then redis.call("DEL", KEYS[5]) end
  return nil
end
local leases = {}
for i, id in ipairs(ids) do leases[2 * i - 1], leases[2 * i] = ARGV[1], id end
local failed = redis.pcall("ZADD", KEYS[4], unpack(leases))
if type(failed) ~= "table" then
  failed = redis.pcall("LPUSH", KEYS[3], unpack(ids))
  if type(failed) == "table" then redis.call("ZREM", KEYS[4], unpack(ids)) end
end
if type(failed) == "table" then -- somebody has written something else there: the tasks stay in their queue
  local back = {}
  for i = #ids, 1, -1 do back[#back + 1] = ids[i] end
  redis.call("RPUSH", KEYS[1], unpack(back))
  return failed
end
-- From here on the tasks are active, and the caller gets them even if somebody has written something that makes no sense under
-- one of our keys. add removes what has another type: nobody could read the key otherwise.
local function add(command, key, ...)
  local done = redis.pcall(command, key, ...)
  if type(done) == "table" and string.find(done.err, "WRONGTYPE", 1, true) then
    redis.call("DEL", key)
    redis.pcall(command, key, ...)
  end
end
add("SADD", ARGV[2] .. "jt:room", unpack(ids))
local t = redis.call("TIME")
local now = t[1] .. string.format("%06d", tonumber(t[2]))
local reply, called, untold, note = {now}, {}, {}, {}
local latest
if ARGV[4] == "orders" then
  local known = redis.pcall("GET", ARGV[2] .. "jt:first")
  latest = math.max(type(known) == "string" and tonumber(known) or 0, tonumber(now) - 1)
end
for _, id in ipairs(ids) do
  local task = ARGV[2] .. "t:" .. id
  local known = redis.pcall("HMGET", task, "msg", "jt", "first") -- nothing, if somebody has written something there that is not a task
  local msg, wait = known[1], known[2] or ""
  if msg then
    local state, since, cost, limiter = string.match(wait, "^(%a) (%d+) %d+ %d+ (%d+) %d+ (.*)$")
    local first, fields = known[3], {"state", "active", "taken", now}
    if state and state ~= "a" then fields[5], fields[6] = "jt", "a" .. string.sub(wait, 2) end
    if latest and not first then
      latest = latest + 1
      first = state and state ~= "a" and since or string.format("%.0f", latest) -- or it parked before anybody kept orders
      fields[#fields + 1], fields[#fields + 2] = "first", first
    end
    redis.call("HSET", task, unpack(fields))
    redis.call("HDEL", task, "pending_since")
    if state == "p" and redis.pcall("ZREM", ARGV[2] .. "jt:line:" .. limiter, id) == 1 and string.find(limiter, "\t", 1, true) then
      redis.pcall("HINCRBY", ARGV[2] .. "jt:tasks", string.match(limiter, "^[^\t]*"), -1)
    end
    if state == "c" then
      limiter = string.match(limiter, "^[^\t]*") -- without the tenant
      called[limiter] = called[limiter] or {}
      table.insert(called[limiter], cost .. ":" .. id)
    end
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = msg, id, wait
    note[#note + 1] = #id .. ":" .. (state or "-") .. id
    if latest then
      reply[n + 4] = first
      untold[#untold + 1], untold[#untold + 2] = first, id
    end
  else
    redis.pcall("SREM", ARGV[2] .. "jt:room", id)
  end
end
for limiter, those in pairs(called) do
  redis.pcall("ZREM", ARGV[2] .. "jt:called:" .. limiter, unpack(those))
  if string.sub(limiter, 1, 1) ~= "!" then
    local key, ends, asking = ARGV[2] .. "jt:asking:" .. limiter, string.format("%.0f", tonumber(now) / 1000 + ARGV[7]), {}
    for i, task in ipairs(those) do asking[2 * i - 1], asking[2 * i] = ends, task end
    redis.pcall("ZADD", key, unpack(asking))
    redis.pcall("PEXPIRE", key, ARGV[7])
  end
end
if #reply == 1 then return nil end
if ARGV[5] ~= "" then redis.call("SET", KEYS[5], ARGV[5] .. " " .. now .. " " .. table.concat(note), "PX", ARGV[6]) end
if latest then
  add("ZADD", ARGV[2] .. "jt:untold", unpack(untold))
  redis.pcall("PEXPIRE", ARGV[2] .. "jt:untold", 86400000)
  redis.call("SET", ARGV[2] .. "jt:first", string.format("%.0f", latest), "PX", 86400000)
end
return reply

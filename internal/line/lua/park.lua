-- Parks tasks of a queue: in asynq's retry set, and in lines. For active tasks it runs in place of asynq's own script
-- that would retry or archive them: a task keeps its id, its retries and its lock, and no failure is counted. Pending
-- tasks park as peek.lua has seen them: those that have moved since are left alone.
--
-- KEYS[1] the list in which asynq has the tasks: active or pending
-- KEYS[2], KEYS[3] asynq's leases, retry set
-- KEYS[4] room:  set of the ids that wait in processes
-- ARGV[1] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV[2] milliseconds that the lock of a task lasts at least, if it has one
-- ARGV[3] "active" or "pending"
-- ARGV    for each task:
--         1 id
--         2 its message with the reason why it waits, or "" to leave the message as it is
--         3 first arrival, in microseconds after 1970, or "" for now
--         4 permits it costs
--         5 when its API first refused it, in seconds after 1970; 0: never
--         6 name of the line, or "" for a task that waits alone
--         7 seconds until asynq's forwarder brings the task back by itself
--         8 milliseconds during which nobody takes it from the line: asynq has to be done with this attempt first
--         9 when this attempt took it from its queue, as take.lua noted it, or "" if that is not known; if it is pending: its
--           mark, from peek.lua
-- Reply: for each task 1, or 0 if it is not active by this attempt, or not pending as it was seen
local prefix, pending, t = ARGV[1], ARGV[3] == "pending", redis.call("TIME")
local seconds = tonumber(t[1]) + tonumber(t[2]) / 1000000
local ms = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)

-- leaves takes a task from where asynq has it, and returns its unique lock, or nil if it is not there any more.
local function leaves(id, task, by)
  local known = redis.pcall("HMGET", task, "unique_key", "taken", "state", "pending_since", "jt")
  if known.err then return nil end -- somebody has written something there that is not a task
  if pending then
    if known[3] ~= "pending" or (known[4] or "") .. " " .. (known[5] or "") ~= by then return nil end
    if redis.call("LREM", KEYS[1], -1, id) == 0 then return nil end
    local line = string.match(known[5] or "", "^p %d+ %d+ %d+ %d+ %d+ (.+)$") -- somebody has run it by hand: it is still in line
    if line and redis.pcall("ZREM", prefix .. "jt:line:" .. line, id) == 1 and string.find(line, "\t", 1, true) then
      redis.pcall("HINCRBY", prefix .. "jt:tasks", string.match(line, "^[^\t]*"), -1)
    end
    return known[1] or ""
  end
  if by ~= "" and known[2] ~= by or redis.call("LREM", KEYS[1], 1, id) == 0 or redis.call("ZREM", KEYS[2], id) == 0 then return nil end
  return known[1] or ""
end

redis.call("ZCARD", KEYS[3]) -- an error, if it is no zset, comes before anything has moved
local parked, reply, lines, soonests = {}, {}, {}, {}
for i = 4, #ARGV, 9 do
  local id, since, line, stays = ARGV[i], ARGV[i + 2], ARGV[i + 5], ARGV[i + 7]
  local lock = leaves(id, prefix .. "t:" .. id, ARGV[i + 8])
  if lock then
    if since == "" then since = string.format("%.0f", tonumber(t[1]) * 1000000 + tonumber(t[2]) + #parked) end -- in their order
    local soonest = soonests[stays] or string.format("%.0f", ms + tonumber(stays))
    soonests[stays] = soonest
    parked[#parked + 1], reply[#reply + 1] = { i, since, soonest, lock }, 1
    local those = lines[line] or {}
    those[#those + 1], those[#those + 2] = since, id
    lines[line] = those
    if not those.soonest or soonest < those.soonest then those.soonest = soonest end
  else
    reply[#reply + 1] = 0
  end
end
if #parked == 0 then return reply end

-- line:    zset, id -> first arrival, in microseconds after 1970
-- lines:   zset, name of a line -> when to visit it next, in milliseconds after 1970; blocked: the same for lines without a limiter
-- tenants, tasks: see tenants.lua
lines[""] = nil
for name, those in pairs(lines) do
  local limiter, tenant = string.match(name, "^([^\t]*)\t(.*)$")
  local function try(...) -- somebody may have written something there that is not a zset, or not a hash
    local done = redis.pcall(...)
    those.failed = those.failed or type(done) == "table" and done.err
    return done
  end
  local added = try("ZADD", prefix .. "jt:line:" .. name, unpack(those))
  if tenant and not those.failed then
    try("HINCRBY", prefix .. "jt:tasks", limiter, added)
    local first = try("ZRANGE", prefix .. "jt:tenants:" .. limiter, 0, 0, "WITHSCORES")
    try("ZADD", prefix .. "jt:tenants:" .. limiter, "NX", first[2] or "0", tenant)
    try("ZADD", prefix .. "jt:lines", "NX", those.soonest, limiter .. "\t")
  elseif not those.failed then
    try("ZADD", prefix .. (string.sub(name, 1, 1) == "!" and "jt:blocked" or "jt:lines"), "NX", those.soonest, name)
  end
end

local retry, ids = {}, {}
for n, p in ipairs(parked) do
  local i, since, soonest = unpack(p)
  local id, message, line, after = ARGV[i], ARGV[i + 1], ARGV[i + 5], tonumber(ARGV[i + 6])
  local task, state = prefix .. "t:" .. id, line == "" and "a" or "p"
  if lines[line] and lines[line].failed then -- it waits alone
    state, after = "a", math.min(after, 60)
  end
  local score = string.format("%.0f", math.ceil(seconds + after))
  retry[2 * n - 1], retry[2 * n], ids[n] = score, id, id
  local wait = state .. " " .. since .. " " .. soonest .. " " .. score .. " " .. ARGV[i + 3] .. " " .. ARGV[i + 4] .. " " .. line
  if message == "" then
    redis.call("HSET", task, "state", "retry", "jt", wait)
  else
    redis.call("HSET", task, "state", "retry", "jt", wait, "msg", message)
  end
  redis.call("HDEL", task, pending and "pending_since" or "taken")
end
redis.call("ZADD", KEYS[3], unpack(retry))
if not pending then redis.pcall("SREM", KEYS[4], unpack(ids)) end
for _, p in ipairs(parked) do
  local lock, id = p[4], ARGV[p[1]]
  local left = lock ~= "" and redis.pcall("GET", lock) == id and redis.call("PTTL", lock)
  if left and left < tonumber(ARGV[2]) then
    local task = prefix .. "t:" .. id
    if redis.call("HEXISTS", task, "lock") == 0 then redis.call("HSET", task, "lock", string.format("%.0f", ms + left)) end -- see failed.lua
    redis.call("PEXPIRE", lock, ARGV[2])
  end
end
return reply

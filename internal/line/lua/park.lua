-- Parks active tasks of a queue: in asynq's retry set, and in lines. Runs in place of asynq's own script that would
-- retry or archive them: a task keeps its id, its retries and its lock, and no failure is counted.
--
-- KEYS[1] to KEYS[3] asynq's active list, leases, retry set
-- KEYS[4] room:  set of the ids that wait in processes
-- ARGV[1] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV[2] milliseconds that the lock of a task lasts at least, if it has one
-- ARGV    for each task:
--         1 id
--         2 its message with the reason why it waits, or "" to leave the message as it is
--         3 first arrival, in microseconds after 1970, or "" for now
--         4 permits it costs
--         5 when its API first refused it, in seconds after 1970; 0: never
--         6 name of the line, or "" for a task that waits alone
--         7 seconds until asynq's forwarder brings the task back by itself
--         8 milliseconds during which nobody takes it from the line: asynq has to be done with this attempt first
--         9 when this attempt took it from its queue, as take.lua noted it, or "" if that is not known
-- Reply: for each task 1, or 0 if it is not active, or is active by a later attempt
local prefix, t = ARGV[1], redis.call("TIME")
local seconds = tonumber(t[1]) + tonumber(t[2]) / 1000000
local ms = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)

local parked, reply, lines = {}, {}, {}
for i = 3, #ARGV, 9 do
  local p = { id = ARGV[i], message = ARGV[i + 1], since = ARGV[i + 2], cost = ARGV[i + 3], refused = ARGV[i + 4], line = ARGV[i + 5],
    after = tonumber(ARGV[i + 6]), soonest = string.format("%.0f", ms + tonumber(ARGV[i + 7])) }
  p.task = prefix .. "t:" .. p.id
  local known = redis.pcall("HMGET", p.task, "taken", "unique_key") -- nothing, if somebody has written something there that is not a task
  if not known.err and (ARGV[i + 8] == "" or known[1] == ARGV[i + 8]) and redis.call("LREM", KEYS[1], 1, p.id) == 1 and redis.call("ZREM", KEYS[2], p.id) == 1 then
    if p.since == "" then p.since = t[1] .. string.format("%06d", tonumber(t[2])) end
    p.lock = known[2]
    parked[#parked + 1], reply[#reply + 1] = p, 1
    local those = lines[p.line] or {}
    those[#those + 1], those[#those + 2] = p.since, p.id
    lines[p.line] = those
    if not those.soonest or p.soonest < those.soonest then those.soonest = p.soonest end
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
for i, p in ipairs(parked) do
  local state, after = p.line == "" and "a" or "p", p.after
  if lines[p.line] and lines[p.line].failed then -- it waits alone
    state, after = "a", math.min(after, 60)
  end
  local score = string.format("%.0f", math.ceil(seconds + after))
  retry[2 * i - 1], retry[2 * i], ids[i] = score, p.id, p.id
  local wait = table.concat({state, p.since, p.soonest, score, p.cost, p.refused, p.line}, " ")
  if p.message == "" then
    redis.call("HSET", p.task, "state", "retry", "jt", wait)
  else
    redis.call("HSET", p.task, "state", "retry", "jt", wait, "msg", p.message)
  end
  redis.call("HDEL", p.task, "taken")
end
redis.call("ZADD", KEYS[3], unpack(retry))
redis.pcall("SREM", KEYS[4], unpack(ids))
for _, p in ipairs(parked) do
  if p.lock and p.lock ~= "" and redis.pcall("GET", p.lock) == p.id and redis.call("PTTL", p.lock) < tonumber(ARGV[2]) then
    redis.call("PEXPIRE", p.lock, ARGV[2])
  end
end
return reply

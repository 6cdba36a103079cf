-- Claims the lines of a queue that are due for a visit, so that one process at a time visits a line that is, and returns which
-- lines there are.
--
-- KEYS[1] asynq's paused mark
-- KEYS[2] lines: as in park.lua
-- KEYS[3] the same for lines of tasks that cannot run as things stand, which are not claimed
-- ARGV[1] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV[2] milliseconds that a visit may take: after that another process visits the line
-- ARGV[3] lines to claim at most; none of a paused queue
-- ARGV[4] lines to return at most
-- ARGV[5] for how many of those the number of tasks is returned
-- ARGV[6] milliseconds after which a called task that nobody took does not count any more
-- ARGV[7] from where to return lines of tasks that cannot run, if there are more: from 0 to less than 1. Half of those that are
--         returned are the ones that were visited longest ago, whatever this is
-- ARGV[8] if the tenants of at most so many limiters have tasks here, puts their lines back among the lines where they are missing
-- ARGV    lines that the caller visits, too, if they are there: they are not claimed
-- Reply: {paused, number of lines, milliseconds until the next visit of one (or -1), number claimed n, n times {name, permits on
-- their way, permits that tasks ask for, tasks, permits that the first costs, 1 if it is not
-- claimed}, then {name, tasks or -1} of each line returned}
local paused = redis.call("EXISTS", KEYS[1])
if tonumber(ARGV[8]) > 0 and redis.call("HLEN", ARGV[1] .. "jt:tasks") <= tonumber(ARGV[8]) then
  for _, limiter in ipairs(redis.call("HKEYS", ARGV[1] .. "jt:tasks")) do redis.call("ZADD", KEYS[2], "NX", "0", limiter .. "\t") end
end
local all = redis.call("ZCARD", KEYS[2])
local most, those = tonumber(ARGV[4]), redis.call("ZCARD", KEYS[3])
local blocked = redis.call("ZRANGE", KEYS[3], 0, (those > most and math.ceil(most / 2) or most) - 1)
if those > most then -- the others in turn
  local first, n = #blocked, most - #blocked
  local from = first + math.floor(tonumber(ARGV[7]) * (those - first))
  for _, name in ipairs(redis.call("ZRANGE", KEYS[3], from, from + n - 1)) do blocked[#blocked + 1] = name end
  for _, name in ipairs(redis.call("ZRANGE", KEYS[3], first, first + most - #blocked - 1)) do blocked[#blocked + 1] = name end
end
if all + #blocked == 0 then return {paused, 0, -1, 0} end
local t = redis.call("TIME")
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local function tasks(name, shared)
  if shared then return tonumber(redis.call("HGET", ARGV[1] .. "jt:tasks", shared) or "0") end
  return redis.call("ZCARD", ARGV[1] .. "jt:line:" .. name)
end
-- permits removes from a set the tasks whose time there is not later than after, and returns what the other tasks cost. It
-- returns 0 if somebody has written something under the key that is not such a set.
local function permits(key, after)
  local n = 0
  redis.pcall("ZREMRANGEBYSCORE", key, "-inf", string.format("%.0f", after))
  redis.pcall("ZREMRANGEBYSCORE", key, string.format("%.0f", now + 2000), "+inf") -- Redis's clock was set back
  for _, task in ipairs(redis.pcall("ZRANGE", key, 0, -1)) do n = n + tonumber(string.match(task, "^%d+") or "0") end
  return n
end
local due, claimed = {}, {}
if paused == 0 and tonumber(ARGV[3]) > 0 then
  due = redis.call("ZRANGEBYSCORE", KEYS[2], "-inf", string.format("%.0f", now), "LIMIT", 0, ARGV[3])
  -- The next visit is at most a minute away, unless Redis's clock was set back.
  for _, name in ipairs(redis.call("ZRANGEBYSCORE", KEYS[2], string.format("%.0f", now + 62000), "+inf", "LIMIT", 0, ARGV[3])) do
    due[#due + 1] = name
  end
  for _, name in ipairs(due) do claimed[name] = true end
  for i = 9, #ARGV do
    if not claimed[ARGV[i]] and redis.call("ZSCORE", KEYS[2], ARGV[i]) then due[#due + 1] = ARGV[i] end
  end
end
local reply = {paused, all, -1, #due}
for _, name in ipairs(due) do
  if claimed[name] then redis.call("ZADD", KEYS[2], string.format("%.0f", now + tonumber(ARGV[2])), name) end
  local shared = string.match(name, "^(.*)\t$") -- the limiter, if tenants share the line: see tenants.lua
  reply[#reply + 1] = name
  reply[#reply + 1] = permits(ARGV[1] .. "jt:called:" .. (shared or name), now - tonumber(ARGV[6]))
  reply[#reply + 1] = permits(ARGV[1] .. "jt:asking:" .. (shared or name), now)
  local line = ARGV[1] .. "jt:line:" .. name
  local first = redis.call("ZRANGE", shared and ARGV[1] .. "jt:tenants:" .. shared or line, 0, 0)[1]
  if shared and first then first = redis.pcall("ZRANGE", line .. first, 0, 0)[1] end -- nil, if somebody has written something there that is not a line
  local wait = first and redis.pcall("HGET", ARGV[1] .. "t:" .. first, "jt")
  if type(wait) ~= "string" then wait = "" end -- perhaps somebody has written something there that is not a task
  reply[#reply + 1] = tasks(name, shared)
  reply[#reply + 1] = tonumber(string.match(wait, "^p %d+ %d+ %d+ (%d+) ") or "1")
  reply[#reply + 1] = claimed[name] and 0 or 1
end
local first = redis.call("ZRANGE", KEYS[2], 0, 0, "WITHSCORES")
if first[2] then reply[3] = math.max(tonumber(first[2]) - now, 0) end
for i, name in ipairs(redis.call("ZRANGE", KEYS[2], 0, tonumber(ARGV[4]) - 1)) do
  reply[#reply + 1] = name
  reply[#reply + 1] = i <= tonumber(ARGV[5]) and tasks(name, string.match(name, "^(.*)\t$")) or -1
end
for _, name in ipairs(blocked) do
  reply[#reply + 1] = name
  reply[#reply + 1] = -1
end
return reply

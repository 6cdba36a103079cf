-- Puts active tasks that only waited back at the head of their queue, because their process drains or has died. At the
-- head they are in the order of their arrivals, together with those that came back before. Those that have asked for
-- nothing come after tasks that were called. No failure is counted.
--
-- KEYS[1] to KEYS[3] asynq's active list, leases, pending list
-- KEYS[4] room: as in park.lua
-- ARGV[1] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV[2] "listed": only tasks whose lease has lapsed and that the room lists, with what is known of their last wait, if
--         they had one; else ""
-- ARGV    for each task: its id, when it was taken (as in park.lua), state, first arrival or "" for now, permits it costs,
--         when its API first refused it or 0, name of the line it would be in
-- Reply: for each task 1; 0 if it is not listed; -1 if it is not active, or is active by a later take
local t = redis.call("TIME")
local now = t[1] .. string.format("%06d", tonumber(t[2]))
local function field(task, name)
  local value = redis.pcall("HGET", task, name)
  return type(value) == "string" and value or ""
end

-- live says whether a task has no lease, or one that has yet to end or ended less than 15 s ago: asynq extends the
-- leases of processes that live.
local function live(id)
  local ends = redis.call("ZSCORE", KEYS[2], id)
  return not ends or tonumber(ends) > tonumber(t[1]) - 15
end

local function back(id, taken, state, since, cost, refused, limiter)
  local task = ARGV[1] .. "t:" .. id
  if ARGV[2] == "listed" and live(id) then return -1 end
  if ARGV[2] == "listed" and redis.pcall("SISMEMBER", KEYS[4], id) ~= 1 then return 0 end -- an error, if the room is no set
  local by = field(task, "taken")
  if taken ~= "" and by ~= taken then return -1 end
  redis.pcall("SREM", KEYS[4], id)
  if redis.call("LREM", KEYS[1], 0, id) == 0 then return -1 end
  if redis.call("ZREM", KEYS[2], id) == 0 then return -1 end
  if ARGV[2] == "listed" then
    local s, c, r, l = string.match(field(task, "jt"), "^%a (%d+) %d+ %d+ (%d+) (%d+) (.*)$")
    if s then
      since, cost, refused, limiter = s, c, r, l
    else
      state, since = "q", by
    end
  end
  if since == "" then since = now end
  local before = leading(KEYS[3], function(head)
    local kind, came = string.match(field(ARGV[1] .. "t:" .. head, "jt"), "^([cwq]) (%d+) ")
    if kind == "c" then return state == "q" end
    return came and tonumber(came) < tonumber(since)
  end)
  behind(KEYS[3], before, {id})
  redis.call("HDEL", task, "taken")
  redis.call("HSET", task, "state", "pending", "pending_since", now .. "000", "jt", table.concat({state, since, string.sub(now, 1, -4), "0", cost, refused, limiter}, " "))
  return 1
end

local reply = {}
for i = 3, #ARGV, 7 do
  reply[#reply + 1] = back(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], ARGV[i + 6])
end
return reply

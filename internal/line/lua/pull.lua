-- Pulls tasks that wait, failed or are archived from where somebody has seen them. It deletes them, also from their
-- lines and with their unique locks, as asynq does. Or it brings them back to pending, behind the tasks that are
-- pending, in the order of the arguments. Then they ask their limits as if they had just come. Tasks that have moved
-- since are left alone.
--
-- KEYS[1] asynq's pending list, KEYS[2] asynq's retry set, KEYS[3] asynq's archive
-- ARGV[1] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV[2] "delete", or "again" for those that failed or are archived
-- ARGV    for each task its id, asynq's state of it, and its score in that state's set
-- Reply: for each task 1 if that is done, 0 if it is no longer there
local sets = { retry = KEYS[2], archived = KEYS[3] }
local t = redis.call("TIME")
local now = t[1] .. string.format("%06d000", tonumber(t[2]))
local reply = {}

-- pull handles one task and returns 1, 0, or an error.
local function pull(id, state, score)
  local task = ARGV[1] .. "t:" .. id
  local known = redis.pcall("HMGET", task, "state", "jt", "unique_key")
  if known.err and string.sub(known.err, 1, 9) ~= "WRONGTYPE" then return known end -- else somebody has written something there that is not a task
  if known[1] ~= state then return 0 end
  local set = sets[state]
  if set then
    if tonumber(redis.call("ZSCORE", set, id) or "nan") ~= tonumber(score) then return 0 end
    redis.call("ZREM", set, id)
  elseif ARGV[2] ~= "delete" or redis.call("LREM", KEYS[1], -1, id) == 0 then
    return 0
  end
  local line = string.match(known[2] or "", "^p %d+ %d+ %d+ %d+ %d+ (.+)$")
  if line and redis.pcall("ZREM", ARGV[1] .. "jt:line:" .. line, id) == 1 and string.find(line, "\t", 1, true) then -- the line of a tenant
    redis.pcall("HINCRBY", ARGV[1] .. "jt:tasks", string.match(line, "^[^\t]*"), -1)
  end
  if ARGV[2] == "again" then
    redis.call("HSET", task, "state", "pending", "pending_since", now)
    redis.call("HDEL", task, "jt", "taken")
    redis.call("LPUSH", KEYS[1], id)
    return 1
  end
  local lock = known[3]
  if lock and lock ~= "" and redis.call("GET", lock) == id then redis.call("DEL", lock) end
  redis.call("DEL", task)
  return 1
end
for i = 3, #ARGV, 3 do
  local done = pull(ARGV[i], ARGV[i + 1], ARGV[i + 2])
  if type(done) == "table" then return done end
  reply[#reply + 1] = done
end
return reply

-- Runs asynq's own script that writes a task, which stands before this as the
-- function enqueue. A task that is refused leaves no unique lock behind; one that
-- replaces an archived task takes its place, or the archived one stays as it was.
--
-- KEYS: those of asynq's script, of which the first is the unique lock if there
--       is one, and then the task and the archive of its queue
-- ARGV: those of asynq's script, and then the id, whether it replaces an archived
--       task, and whether it has a unique lock (1 or 0)
-- reply: that of asynq's script: 1 written, 0 the id is taken, -1 the lock is

local task, archive = KEYS[#KEYS - 1], KEYS[#KEYS]
local id, replaces = ARGV[#ARGV - 2], ARGV[#ARGV - 1] == '1'
local lock = ARGV[#ARGV] == '1' and KEYS[1]

-- A lock whose task is gone holds up nobody: asynq trims its archive, and forgets tasks that are done, without their locks.
local keeper = lock and redis.call('GET', lock)
if keeper then
  local its = string.sub(task, 1, #task - #id) .. keeper
  if redis.call('EXISTS', its, its .. '~1') == 0 then redis.call('DEL', lock) end -- ~1: earlier versions parked copies
end

local old = replaces and redis.call('HGET', task, 'state') == 'archived'
local holder = old and lock and redis.call('GET', lock)
if not old or holder and holder ~= id then
  local reply = enqueue()
  if reply == -1 and redis.call('GET', lock) == id then
    return 0 -- an earlier attempt of this same write arrived
  end
  if reply == 0 and lock then redis.call('DEL', lock) end -- asynq's script has just set it, before it looked at the id
  return reply
end

-- The archived task and the lock step aside. DEL and RENAME come first: whoever
-- may not call them is refused before anything has changed.
local old_task, old_lock = archive .. ':replaced:' .. id, lock and lock .. ':replaced' -- no task has such a key
local failed_at = redis.call('ZSCORE', archive, id)
redis.call('DEL', old_task)
redis.call('RENAME', task, old_task)
local ok, reply = pcall(function()
  redis.call('ZREM', archive, id)
  if holder then redis.call('RENAME', lock, old_lock) end
  return enqueue()
end)
if ok and reply == 1 then
  local other = redis.call('HGET', old_task, 'unique_key')
  if other and other ~= '' and other ~= lock and redis.call('GET', other) == id then redis.call('DEL', other) end
  redis.call('DEL', old_task)
  if holder then redis.call('DEL', old_lock) end
  return reply
end
redis.call('RENAME', old_task, task)
if failed_at then redis.call('ZADD', archive, failed_at, id) end
if holder then
  redis.call('RENAME', old_lock, lock)
elseif lock and redis.call('GET', lock) == id then
  redis.call('DEL', lock)
end
if not ok then error(reply, 0) end
return reply

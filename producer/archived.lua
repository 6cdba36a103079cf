-- Removes an archived task, so that another can take its id, and its unique
-- lock if that is its own.
--
-- KEYS: 1 the task, 2 the archive of its queue
-- ARGV: 1 the id
-- reply: 1 removed, 0 it is not archived (any more)

if redis.call('HGET', KEYS[1], 'state') ~= 'archived' then return 0 end
local lock = redis.call('HGET', KEYS[1], 'unique_key')
if lock and lock ~= '' and redis.call('GET', lock) == ARGV[1] then redis.call('DEL', lock) end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[1])
return 1

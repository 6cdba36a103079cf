-- Moves tasks from the line that the version before this one kept for a limiter, for all queues, to the lines of their
-- queues. Their places stay: park.lua goes on from the old clock.
--
-- KEYS[1] to KEYS[5] the old line, called, clock, costs and since: as in park.lua, but "last:" of queues with their names
--         as they are, and since -> when it first parked, alone
-- KEYS[6] to KEYS[8] clock, costs, kept: as in park.lua
-- KEYS[9] what the names of the lines begin with, before QUEUE
-- ARGV[1] tasks to move at most
-- Reply: tasks left in the old line
local line, called, clock, costs, kept, prefix = KEYS[1], KEYS[2], KEYS[6], KEYS[7], KEYS[8], KEYS[9]

local out = redis.call("HGETALL", called)
for i = 1, #out, 2 do redis.call("ZADD", line, string.match(out[i + 1], "^%S+"), out[i]) end
redis.call("DEL", called)
if not redis.call("HGET", clock, "now") then
  redis.call("HSET", clock, "now", redis.call("HGET", KEYS[3], "now") or "0")
end

local moved = redis.call("ZPOPMIN", line, ARGV[1])
for i = 1, #moved, 2 do
  local task, place = moved[i], tonumber(moved[i + 1])
  local queue = string.match(task, "^[^:]*")
  place = place - tonumber(redis.call("HGET", clock, "shift:" .. queue) or "0")
  local cost, since = redis.call("HGET", KEYS[4], task), redis.call("HGET", KEYS[5], task)
  redis.call("HDEL", KEYS[4], task)
  redis.call("HDEL", KEYS[5], task)
  if redis.call("ZADD", prefix .. queue, "NX", string.format("%.17g", place), task) > 0 then
    redis.call("HSET", kept, task, (since or "0") .. " 0")
    if cost then redis.call("HSET", costs, task, cost) end
  end
  local last = redis.call("HGET", clock, "last:" .. queue)
  if not last or place > tonumber(last) then redis.call("HSET", clock, "last:" .. queue, string.format("%.17g", place)) end
end
local left = redis.call("ZCARD", line)
if left == 0 then redis.call("DEL", KEYS[3], KEYS[4], KEYS[5]) end
return left

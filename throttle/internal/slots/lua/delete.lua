-- Removes a limit in flight, whatever its fields are. A rate limit, or another hash, stays.
--
-- KEYS: SPAN keys of the limit (slots.lua)
-- reply: 1 if there was one, else 0

local h = redis.call('HMGET', KEYS[1], 'in_flight', 'rate')
if not h[1] or h[2] then return 0 end
redis.call('DEL', unpack(KEYS))
return 1

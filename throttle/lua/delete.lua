-- Deletes a limiter with all its keys, those of known clients among them.
-- (Keys of clients that nobody has seen for a while expire by themselves.)
--
-- KEYS: the SPAN keys of the limiter (log.lua), 7 the last reply of this client's queue
-- reply: 1 deleted, 0 there was none

local had = call('EXISTS', KEYS[1], KEYS[2], KEYS[3]) > 0
for _, id in ipairs(config().clients_of(1)) do call('DEL', KEYS[2] .. ':' .. id, KEYS[3] .. ':' .. id) end
call('DEL', unpack(KEYS))
config().announce(KEYS[1])
return had and 1 or 0

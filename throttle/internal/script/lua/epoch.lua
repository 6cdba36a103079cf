-- Tells whether configurations are still what a client last saw: one read for each limiter, before
-- reservations that are due are used.
--
-- KEYS: names
-- reply: one string, separated by spaces: now us, and the epoch of each: 0 if it is missing or was changed by a
--        Redisson client

local t = redis.call('TIME')
local out = t[1] .. string.sub('00000' .. t[2], -6)
for i = 1, #KEYS do
  local h = redis.call('HMGET', KEYS[i], 'epoch', 'seal', 'rate', 'interval', 'type')
  local shown = (h[3] or '') .. ':' .. (h[4] or '') .. ':' .. (h[5] or '0') .. ':'
  out = out .. ' ' .. (h[1] and string.sub(h[2] or '', 1, #shown) == shown and h[1] or '0')
end
return out

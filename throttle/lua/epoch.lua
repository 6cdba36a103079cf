-- Tells whether configurations are still what a client last saw: one read a
-- limiter, before places that fall due.
--
-- KEYS: names
-- reply: one string, the epoch of each, separated by spaces: 0 if it is missing or was changed by a Redisson client

local out = {}
for i, name in ipairs(KEYS) do
  local h = redis.call('HMGET', name, 'epoch', 'seal', 'rate', 'interval', 'type')
  local shown = (h[3] or '') .. ':' .. (h[4] or '') .. ':' .. (h[5] or '0') .. ':'
  out[i] = h[1] and string.sub(h[2] or '', 1, #shown) == shown and h[1] or '0'
end
return table.concat(out, ' ')

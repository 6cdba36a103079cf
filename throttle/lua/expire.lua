-- Lets all keys of a limiter expire, or keeps them from expiring.
--
-- KEYS: the SPAN keys of the limiter (log.lua), 7 the last reply of this client's queue
-- ARGV: 1 in how many ms (0: never, and no keepAlive any more)
-- reply: 1 done, 0 there is no such limiter, or none that expires

local ms = tonumber(ARGV[1])
if call('EXISTS', KEYS[1]) == 0 then return 0 end
local m = open(1)
if m and m.bad then return bad_field(m) end
if ms == 0 then
  local had = call('PTTL', KEYS[1]) >= 0
  if had and call('HGET', KEYS[1], 'keepAliveTime') then call('HSET', KEYS[1], 'keepAliveTime', '0') end
  call('PERSIST', KEYS[1])
  call('PERSIST', KEYS[2])
  call('PERSIST', KEYS[3])
  m = open(1)
  if m and not m.foreign then config().write_seal(m) end
  return had and 1 or 0
end
for i = 1, 7 do
  if i < 7 or call('PTTL', KEYS[i]) > ms then call('PEXPIRE', KEYS[i], ms) end
end
if m and not m.foreign then config().write_seal(m) end
for _, id in ipairs(config().clients_of(1)) do
  call('PEXPIRE', KEYS[2] .. ':' .. id, ms)
  call('PEXPIRE', KEYS[3] .. ':' .. id, ms)
end
return 1

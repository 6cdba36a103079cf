-- Renews leases of one limit.
--
-- KEYS: SPAN keys of the limit (slots.lua)
-- ARGV: for each lease: id, fence
-- reply: {for each: ms that it lasts from now on, -1 if it is over}

local now, us = clock()
local m = open(1)
local reply = {}
-- left returns how long a lease lasts yet, in ms; nil if it is over.
local function left(id, fence)
  local h = read(call('HGET', m.held, id))
  if not h or h.fence ~= fence or h.state ~= 'l' then return nil end
  local ms = tonumber(call('ZSCORE', m.slots, id) or '0') - now
  return ms > 0 and ms or nil
end
for i = 1, #ARGV, 2 do
  local ms = m.there and not m.bad and left(ARGV[i], ARGV[i + 1])
  if ms then -- its holder may not hear of this: it is not over sooner than the holder knows
    ms = max(m.lease, min(ms, m.longest))
    call('ZADD', m.slots, int(now + ms), ARGV[i])
  end
  reply[#reply + 1] = ms or -1
end
if m.there and not m.bad then
  settle(m, now, us)
  keep(m)
end
return reply

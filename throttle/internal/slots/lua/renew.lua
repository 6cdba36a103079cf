-- Renews leases of one limit.
--
-- KEYS: SPAN keys of the limit (slots.lua)
-- ARGV: for each lease: id, fence
-- reply: {for each: ms that it lasts from now on, -1 if it is over}

local now, us = clock()
local m = open(1)
local reply = {}
local function alive(id, fence)
  local h = read(call('HGET', m.held, id))
  if not h or h.fence ~= fence or h.state ~= 'l' then return false end
  return tonumber(call('ZSCORE', m.slots, id) or '0') > now
end
for i = 1, #ARGV, 2 do
  local ms = -1
  if m.there and not m.bad and alive(ARGV[i], ARGV[i + 1]) then
    ms = m.lease
    call('ZADD', m.slots, int(now + ms), ARGV[i])
  end
  reply[#reply + 1] = ms
end
if m.there and not m.bad then
  settle(m, now, us)
  keep(m)
end
return reply

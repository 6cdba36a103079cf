-- Reads a limit in flight, and who holds its slots. Writes nothing.
--
-- KEYS: SPAN keys of the limit (slots.lua)
-- ARGV: 1 how many holders to tell of at most
-- reply: nil if there is no such limit, else {slots, ms of a lease, taken, waiting, 1 if it is pinned,
--   ms since the head of the line came or 0, then for each holder, in the order in which their leases end: id, ms until that,
--   ms since it got the slot, state (slots.lua), client id}
-- errors: "BADFIELD field"

local now, us = clock()
local m = open(1)
if m.bad == 'RATED' or not m.there then return false end
if m.bad then return redis.error_reply(m.bad) end
local reply = { m.limit, m.lease, call('ZCOUNT', m.slots, '(' .. int(now), '+inf'), call('ZCARD', m.line), call('HGET', m.name, 'pinned') == '1' and 1 or 0, 0 }
local head = call('ZRANGE', m.line, 0, 0, 'WITHSCORES')
if head[2] then reply[6] = max(floor((us - tonumber(head[2])) / 1000), 0) end
local slots = tonumber(ARGV[1]) > 0 and call('ZRANGEBYSCORE', m.slots, '(' .. int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[1]) or {}
for i = 1, #slots, 2 do
  local h = read(call('HGET', m.held, slots[i]))
  reply[#reply + 1] = slots[i]
  reply[#reply + 1] = tonumber(slots[i + 1]) - now
  reply[#reply + 1] = h and max(now - tonumber(h.since), 0) or 0
  reply[#reply + 1] = h and h.state or ''
  reply[#reply + 1] = h and match(h.rest, '^(%S*)') or ''
end
return reply

-- Gives slots back and claims others, for the waiters of one queue: each claim gets a slot of all
-- limits, or of none. A claim that is refused stands in the line of the limit that refused it, and
-- in no other.
--
-- KEYS: SPAN keys of each limit (slots.lua), then the number of the last call of this queue
-- ARGV: 1 token of the queue, 2 client id, 3 number of this call, higher than that of any before: digits, all of one length,
--       4 limits n; for each: slots, ms of a lease, 1 to apply these (0: only if the limit has none);
--       then the number of slots given back; for each: id, fence (0: it has only claimed), number of its claim;
--       then the number of claims; for each: id, its number, first arrival in us (0: now), ms since it was made
-- reply: 'old' if a later call of this queue was served; else {for each claim: "g fence ms" with what is left of the lease,
--       or "w k ms since": refused by the limit k, counted from 0; ms until a lease ends that another has of this id (0: none
--       has); us since when the claim stands in line}
-- errors: "LIMIT k RATED", "LIMIT k BADFIELD field": the limit k, counted from 0, makes no sense

local now, us = clock()
local arg = 4
local function take()
  arg = arg + 1
  return ARGV[arg]
end
local me, client, n = ARGV[1], ARGV[2], tonumber(ARGV[4])
local call_key = KEYS[n * SPAN + 1]
local last = call('GET', call_key)
if last and last > ARGV[3] then return 'old' end
local limits, bad = {}, nil -- bad: what is wrong with one of them; the others get their slots back all the same
for k = 1, n do
  local m = open(k, take(), take(), take())
  bad = bad or m.bad and 'LIMIT ' .. k - 1 .. ' ' .. m.bad
  if not m.bad then limits[#limits + 1] = m end
end
call('SET', call_key, ARGV[3], 'PX', 60000)

for _ = 1, tonumber(take()) do
  local id, fence, claim = take(), take(), take()
  for _, m in ipairs(limits) do
    local h = read(call('HGET', m.held, id))
    if fence == '0' then
      call('ZREM', m.line, me .. ' ' .. id)
      if h and h.token == me and (h.state == 'h' or h.claim == claim) then free(m, id, h, now) end
    elseif h and h.fence == fence and h.token == me then
      free(m, id, h, now)
    end
  end
end

if bad then
  for _, m in ipairs(limits) do
    settle(m, now, us)
    keep(m)
  end
  return redis.error_reply(bad)
end

local claims = tonumber(take())
for _, m in ipairs(limits) do
  if claims > 0 then
    call('ZREMRANGEBYSCORE', m.seen, '-inf', int(now - 20 * GONE))
    call('ZADD', m.seen, int(now), me)
  end
  settle(m, now, us)
end

local reply = {}
for i = 1, claims do
  local id, claim, since, age = take(), take(), take(), tonumber(take())
  local mine, other, refused, wait, left = {}, false, nil, 0, LATEST
  local granted = true -- by an earlier call whose reply was lost
  for k, m in ipairs(limits) do
    local h = read(call('HGET', m.held, id))
    if h and h.token ~= me and not call('ZSCORE', m.slots, id) then -- Redis has lost its slot
      call('HDEL', m.held, id)
      h = nil
    end
    if h and h.token == me and h.state ~= 's' then
      mine[k] = h
    elseif h then
      other, refused = true, refused or k
      local had = tonumber(h.since)
      if h.state ~= 'h' and (had <= now - age or had > now) then -- the id moves to its new holder: the slot stays, and is not shared
        call('HSET', m.held, id, table.concat({ h.fence, h.token, 's', h.claim, h.since, match(h.rest, '^(%S*)') .. ' ' .. me }, ' '))
      end
      wait = max(wait, tonumber(call('ZSCORE', m.slots, id) or '0') - now)
    elseif m.free < 1 then
      refused = refused or k
    end
    if h and mine[k] and h.state == 'l' and h.claim == claim then
      left = min(left, tonumber(call('ZSCORE', m.slots, id) or '0') - now)
    else
      granted = false
    end
  end
  if granted then
    reply[i] = 'g ' .. mine[1].fence .. ' ' .. int(max(left, 0))
  elseif not refused then
    local fence, lease = us, LATEST
    for _, m in ipairs(limits) do fence, lease = max(fence, m.fence + 1), min(lease, m.lease) end
    for k, m in ipairs(limits) do
      m.fence = fence
      call('HSET', m.name, 'fence', int(fence))
      local ends = now + m.lease
      if mine[k] then ends = max(ends, min(tonumber(call('ZSCORE', m.slots, id) or '0'), now + m.longest)) end -- as in renew.lua
      call('ZADD', m.slots, int(ends), id)
      call('HSET', m.held, id, table.concat({ int(fence), me, 'l', claim, int(now), client }, ' '))
      call('ZREM', m.line, me .. ' ' .. id)
      if not mine[k] then m.free = m.free - 1 end
    end
    reply[i] = 'g ' .. int(fence) .. ' ' .. int(lease)
  else
    if since == '0' then since = int(us + i) end
    for k, m in ipairs(limits) do
      if k == refused and not other then
        local stood = call('ZSCORE', m.line, me .. ' ' .. id)
        if stood and tonumber(stood) <= tonumber(since) then since = int(tonumber(stood)) else call('ZADD', m.line, since, me .. ' ' .. id) end
      else
        call('ZREM', m.line, me .. ' ' .. id)
      end
      if mine[k] and (mine[k].state == 'h' or mine[k].claim == claim) then -- what it was handed goes to the next; what an earlier claim has, stays
        free(m, id, mine[k], now)
        settle(m, now, us)
      end
    end
    reply[i] = 'w ' .. int(refused - 1) .. ' ' .. int(max(wait, 0)) .. ' ' .. since
  end
end
for _, m in ipairs(limits) do keep(m) end
return reply

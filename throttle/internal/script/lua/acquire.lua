-- Gives back, releases and grants permits of one limiter or of a group, for
-- all waiters of a client's queue at once, each exactly once however often
-- the script is repeated.
--
-- KEYS: 1 this queue's last reply, then SPAN keys for each member (log.lua)
-- ARGV: batch number (grows within the queue's key), client id, numbers, then
--       M x: seal last seen ('' none), configuration to create it with (rate:interval:type:keepAlive:guard:smooth:window:offset), or '' (it
--            has to be there), or - (it need not be there, if nothing is asked for)
-- The numbers are one argument, separated by spaces, which Redis reads faster than many arguments:
--       us that Redis's clock must show at least, as acquire.lua last told this queue (0: never)
--       us that it would show if it had not been set back, as far as the client knows (0: it does not know)
--       us after which the batch must not be served (0: any time), since its last reply may be forgotten
--       us up to where reservations may be used without having heard of a change, if that is more than NEAR (0)
--       members M; M x: epoch last seen (0 none), refresh (1: rebuild the cached value), permits this queue has reserved ahead
--       number of returns, each: time, 1 if the permits were handed out and others are to hear of what becomes free, 2 if a run
--            asks for as much in exchange, or 0; plus 4 x the bits of the members whose waiters may move up; M x epoch, M x permits
--       M x permits to release from the oldest grants
--       number of runs, each: longest wait us, reach us (how far ahead permits may be reserved), near us (up to where that does
--            not depend on what other clients have), lead us (no earlier than so far ahead), count, M x permits
--            a longest wait of -1 asks for a prefetch: up to count now, as long as half of the limit stays free
-- reply: one string of integers (and seals), separated by spaces:
--   now us, status: 0, or 1 member (not initialized), or 2 (an older batch than the last one), or 3 time us (everything was
--            granted then: what fast.lua said to this batch), or 4 member field (its configuration makes no sense), or 5 (too late)
--   time us the offsets count from
--   M x: epoch, changed; if changed is 1: seal, rate, interval us, guard us, type, window, smooth
--   number of clients that lately asked for reservations beyond near (0: this one did not)
--   each run: number of grants, each: count, offset us; then outcome of the rest: 0 (none), 1 wait us, member (denied),
--            2 member, rate (more than the rate), 3 wait us, member (due beyond what it may reserve, or beyond its share)
-- Members count from 0 in the reply.

local batch, client = ARGV[1], ARGV[2]
local next_number, state = string.gmatch(ARGV[3], '%S+') -- miniredis needs the state
local function take() return next_number(state) end
local function take_number() return next_number(state) + 0 end

-- member is a limiter in this call; the fields of its configuration can be read in it.
local function member(config, kept, known)
  return setmetatable({
    kept = kept, stays = known and config.keep == 0 and not config.per_client, frontier = false,
    text = false, cached = false, card = 0, -- its value as Redis has it, as text and as a number, and how many entries its log had
    value = 0, at = {}, x = {}, dirty = false, -- its new value, the times and permits of what this call grants, and whether anything else changed
    page = false, skip = 0, oldest = false, purged = false, -- as purge left them
    short = false, -- little of the limit was free before anything was given back
  }, { __index = config })
end

local now, at = clock()
local least, furthest, latest, far, M = take_number(), take_number(), take_number(), take_number(), take_number()

-- Everything is read before anything is written: an error leaves no half-done batch.
local members, seen, refresh, ahead, keys = {}, {}, {}, {}, { KEYS[1] }
for i = 1, M do
  local k = 2 + (i - 1) * SPAN
  seen[i], refresh[i], ahead[i] = take(), take() == '1', take_number()
  local config, kept, known = open(k, ARGV[2 + 2 * i])
  if config and config.bad then
    if M == 1 or ARGV[3 + 2 * i] ~= '-' then return format('%s 4 %d %s', at, i - 1, config.bad) end
    config = nil -- to the others goes back what is theirs
  end
  members[i] = config and member(config, kept, known) or false
  keys[i + 1] = config and config.value_key or KEYS[k + 1]
end
local read = call('MGET', unpack(keys))
for i = 1, M + 1 do
  if not read[i] then read[i] = call('GET', keys[i]) end -- a key of another type is an error
end

local last = read[1]
if last and match(last, '^%d+ ') then -- all batch numbers of a queue have one length, so they are ordered as text
  local no = sub(last, 1, #batch)
  if no == batch then return at .. sub(last, #batch + 1) end
  if no > batch then return at .. ' 2' end
end

if latest > 0 and now > latest then return at .. ' 5' end

for i = 1, M do
  if not members[i] and ARGV[3 + 2 * i] == '' then return format('%s 1 %d', at, i - 1) end
end
-- following goes through the members that are there.
local function following(_, i)
  repeat i = i + 1 until members[i] ~= false
  return members[i] and i, members[i]
end

for i = 1, M do
  local m, text = members[i], read[i + 1]
  if not m and ARGV[3 + 2 * i] ~= '-' then
    m = member(config().create_config(2 + (i - 1) * SPAN, ARGV[3 + 2 * i], now), nil, false)
    members[i], text = m, call('GET', m.value_key)
  end
  if m then m.text, m.cached, m.card = text, whole(text), call('ZCARD', m.permits_key) end
end

for i, m in following, nil, 0 do
  local epoch = seen[i] + 0
  local ran = least >= m.epoch and least - now < min(m.W, NEAR) and now - least < m.W / 2 -- time has run on, since this client was told it
  if not ran or furthest - now >= m.W or epoch ~= m.epoch or m.epoch > now or refresh[i] then
    upkeep().mind_clock(m, client, epoch, least, furthest, now)
  end
  if far > 0 then upkeep().note_far(m, far) end
  update(m, client, refresh[i], epoch, now, furthest)
  m.short = m.value < m.rate / 8
end

local changed, freed, moves_up = false, {}, {} -- moves_up: the earliest time for which others may ask
local kept -- how many permits of each member this queue may have reserved ahead, whatever its share is; nil: it exchanges none
for _ = 1, take_number() do
  local t, code, epochs = take_number(), take_number(), {}
  local kind, announce = code % 4, floor(code / 4)
  for i = 1, M do epochs[i] = take_number() end
  for i = 1, M do
    local n = take_number()
    -- A reservation of an older configuration was dropped, or stays: we must not touch it.
    local m = members[i]
    local same = m and epochs[i] == m.epoch
    if kind == 2 and same and t > now then
      kept = kept or { unpack(ahead) }
      kept[i] = kept[i] + n
    end
    if m and n > 0 and (same or kind == 1) and upkeep().take_back(m, t, n, now, same) then
      changed = true
      freed[i] = freed[i] or kind == 1
      if floor(announce / 2 ^ (i - 1)) % 2 == 1 and not m.per_client then moves_up[i] = min(moves_up[i] or t, t) end
    end
  end
end

for i = 1, M do
  local n = take_number()
  if n > 0 then
    upkeep().release(members[i], n, now)
    freed[i] = true
  end
  -- Tell those who wait: their reservations are far ahead, or they could reserve nothing. If all that goes back was for a
  -- later time, tell only if somebody has reserved something after that time. So a client delays nobody if it reserves permits
  -- to learn when they are due, and gives them back.
  local m, t = members[i], not freed[i] and moves_up[i] or now
  if freed[i] or moves_up[i] then
    changed = true
    if m.short and t <= now or call('ZCOUNT', m.permits_key, '(' .. score(max(t, now + NEAR)), '+inf') > 0 then config().announce_release(m.name) end
  end
end

local out, o = { '0', at }, 2
local earliest, grid, paused = now, nil, 1
for i = 1, M do
  local m = members[i]
  if m and m.pause > earliest then earliest, paused = m.pause, i end
  if m and m.grid then grid = min(grid or m.grid, m.grid) end
  if not m or m.seal == ARGV[2 + 2 * i] then
    out[o + 1], out[o + 2] = seen[i], '0' -- the epoch, too, is the one that the client has seen
    o = o + 2
  else
    local settings = { m.epoch, 1, m.seal, m.rate, m.interval, m.guard, m.per_client and 1 or 0, m.calendar and 1 or 0, m.smooth and 1 or 0 }
    for j, x in ipairs(settings) do out[o + j] = x == m.seal and x or int(x) end
    o = o + #settings
  end
end
o = o + 1
local contenders, contenders_at, shares = 0, o, nil

local blocked, rooms = false, {}
for _ = 1, take_number() do
  local longest, reach, near, lead, count, ns = take_number(), take_number(), take_number(), take_number(), take_number(), {}
  local over
  for i, m in ipairs(members) do
    ns[i] = take_number()
    if ns[i] > m.rate then over = over or i end
    reach = min(reach, bound(m, now) - now) -- the client may know an older configuration
  end
  o = o + 1
  local given_at, given = o, 0
  local rest, why, member = '0', nil, nil
  if over then
    rest, why, member = '2', over - 1, members[over].rate
  elseif longest < 0 then
    for i, m in ipairs(members) do
      count = min(count, floor((m.value - m.rate / 2) / ns[i]))
      if m.smooth or m.calendar or m.pause > now then count = 0 end
    end
    if count > 0 then
      for i, m in ipairs(members) do grant(m, now, ns[i] * count) end
      changed, given = true, 1
      out[o + 1], out[o + 2] = int(count), '0'
      o = o + 2
    end
  else
    local from = max(earliest, now + lead)
    if grid and lead > 0 then -- otherwise each exchange would be an entry of its own
      local _, high = bucket(grid, from)
      if high - now <= longest and high - from <= lead then from = high end
    end
    while count > 0 do
      -- Find the earliest time T at which all members have room for ns. T only grows, and is found
      -- when no member moves it any more. Then it moves to the end of its bucket, in the log of the
      -- member that was full before it.
      local T, tight, settled, i = from, paused, 0, 1
      while settled < M do
        local t, room = fit(members[i], ns[i], T, now)
        rooms[i] = room
        if t > T then
          T, tight, settled = t, i, 1
        else
          settled = settled + 1
        end
        if settled == M and T > from and waits_for_bucket(members[tight], ns[tight]) then
          local _, high = bucket(members[tight].grid, T)
          if high > T then T, settled = high, 0 end
        end
        i = i % M + 1
      end
      local times, wait = count, T - now
      for k = 1, M do times = min(times, max(1, floor(rooms[k] / ns[k]))) end

      -- Beyond near, clients that contend have equal shares of what the horizon holds, so that none
      -- takes all of it before the others ask. Nearer times are for anybody: a share that is not
      -- used is not lost. Who had more before others came, and exchanges it, gets as much again:
      -- its callers were told that it comes in time.
      if wait > near and longest > near then
        if not shares then
          shares, contenders = {}, 1
          for k, m in ipairs(members) do
            local n = m.per_client and 1 or seen_clients(m, client, refresh[k], now, at)
            contenders = max(contenders, n)
            if n > 1 then shares[k] = max(1, floor(m.rate * max(m.interval, 1000000) / m.W / n)) end
          end
        end
        for k, share in pairs(shares) do
          -- At least one while the share is not used up, so that a share smaller than a big request
          -- does not block it.
          local left = (kept and max(share, kept[k]) or share) - ahead[k]
          times = min(times, max(ahead[k] < share and 1 or 0, floor(left / ns[k])))
        end
      end
      if wait > reach or times < 1 or blocked and longest > 0 then
        rest, why, member = '1', wait, tight - 1
        if wait <= longest then rest, blocked = '3', true end
        break
      end
      for k, m in ipairs(members) do
        grant(m, T, ns[k] * times)
        if wait > 0 then
          ahead[k] = ahead[k] + ns[k] * times
        elseif kept then
          kept[k] = kept[k] - ns[k] * times
        end
      end
      changed, given = true, given + 1
      out[o + 1], out[o + 2] = int(times), int(wait)
      o = o + 2
      count, from = count - times, T
    end
  end
  out[given_at], out[o + 1] = int(given), rest
  o = o + 1
  if why then
    out[o + 1], out[o + 2] = int(why), int(member)
    o = o + 2
  end
end
out[contenders_at] = int(contenders)

local ttl, stays = 0, false
local longest_W = 0
for i, m in following, nil, 0 do
  write(m, now)
  local written = m.dirty or #m.at > 0
  if written then
    m.text = int(m.value)
    call('SET', m.value_key, m.text, 'KEEPTTL')
  end
  local frontier = not m.per_client and keep_frontier(m, now, at)
  if frontier then
    call('HSET', m.name, 'frontier', frontier)
  elseif m.kept and written then
    call('HDEL', m.name, 'frontier')
  end
  -- Keys that existed before keep the expiry that Expire, or Redisson's, gave them.
  local t = written and (not (m.stays and last) or refresh[i]) and upkeep().expire(m, now)
  if t and not m.per_client then
    ttl = max(ttl, t)
  else
    stays = true
  end
  longest_W = max(longest_W, m.W)
end

local body = table.concat(out, ' ')
if changed then
  local kept = min(max(ceil(longest_W / 1000), KEPT), 60000)
  if not stays and latest > 0 then kept = min(kept, ttl) end -- the reply expires with its limiter, or the last of them,
  kept = max(kept, ceil((latest - now) / 1000) + 1) -- but not while the batch may be repeated
  call('SET', KEYS[1], batch .. ' ' .. body, 'PX', int(kept))
end
return at .. ' ' .. body

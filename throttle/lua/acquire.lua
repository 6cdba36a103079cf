-- Gives back, releases and grants permits of one limiter or of a group, for
-- all waiters of a client's queue at once, each exactly once however often
-- the script is repeated.
--
-- KEYS: 1 this queue's last reply, then SPAN keys for each member (log.lua)
-- ARGV: batch number (grows within the queue's key), client id, members M
--       M x: seal last seen ('' none), epoch last seen (0 none), refresh (1: rebuild the cached value), configuration to create it with
--            (rate:interval:type:keepAlive:guard:smooth:window:offset) or '', permits this queue has reserved ahead
--       number of returns, each: time, M x epoch, M x permits
--       M x permits to release from the oldest grants
--       number of runs, each: longest wait us, reach us (how far ahead places may be reserved), near us (up to where
--            without regard to what other clients have), lead us (no earlier than so far ahead), count, M x permits
--            a longest wait of -1 asks for a prefetch: up to count now, as long as half of the limit stays free
--       us that Redis's clock must show at the least, as it was when this queue last heard of it (0: never)
-- reply: one string of integers (and seals), separated by spaces:
--   now us, status: 0, or 1 member (not initialized), or 2 (an older batch than the last one), or 3 time us (all was granted
--            then: what fast.lua said to this batch)
--   time us the offsets count from
--   M x: epoch, changed; if changed is 1: seal, rate, interval us, guard us, type, window, smooth
--   number of clients that lately asked for places beyond near (0: this one did not)
--   each run: number of grants, each: count, offset us; then outcome of the rest: 0 (none), 1 wait us, member (denied),
--            2 member, rate (more than the rate), 3 wait us, member (its turn is beyond what it may reserve, or its share)
-- Members count from 0 in the reply.

local arg = 0
local function take()
  arg = arg + 1
  return ARGV[arg]
end
local function take_number() return tonumber(take()) end

local now = clock()
local at = int(now) -- the same as text
local batch, client, M = take_number(), take(), take_number()

local last = call('GET', KEYS[1])
if last then
  local seq, body = string.match(last, '^(%d+) (.*)$')
  if seq and tonumber(seq) == batch then return at .. ' ' .. body end
  if seq and tonumber(seq) > batch then return at .. ' 2' end
end

local out = { '0', at }
local function say(n) out[#out + 1] = int(n) end

-- Everything is read before anything is written: an error leaves no half-done batch.
local members, seal, seen, refresh, create, ahead = {}, {}, {}, {}, {}, {}
for i = 1, M do
  seal[i], seen[i], refresh[i], create[i], ahead[i] = take(), take_number(), take() == '1', take(), take_number()
  local k = 2 + (i - 1) * SPAN
  members[i] = open(k, seal[i]) or false
end
for i = 1, M do
  if not members[i] and create[i] == '' then return format('%s 1 %d', at, i - 1) end
end
for i = 1, M do
  local m = members[i]
  if not m then
    m = create_config(2 + (i - 1) * SPAN, create[i], now)
    members[i] = m
  end
  m.cached = whole(call('GET', m.value_key))
  m.card = call('ZCARD', m.permits_key)
  m.grants, m.order = {}, {}
end

for i, m in ipairs(members) do
  local by = tonumber(ARGV[#ARGV]) - now
  -- Where the epoch is another, somebody else has seen to it; but not to this client's own log.
  if by >= m.W and (m.per_client or seen[i] == m.epoch) then set_back(m, now, by) end
  update(m, client, refresh[i], seen[i], now)
end

local changed = false
for _ = 1, take_number() do
  local t, epochs = take_number(), {}
  for i = 1, M do epochs[i] = take_number() end
  for i = 1, M do
    local n = take_number()
    -- A place of an older configuration was dropped, or stands: it is not ours to touch.
    if epochs[i] == members[i].epoch and give_back(members[i], t, n, now) then changed = true end
  end
end

for i = 1, M do
  local n = take_number()
  if n > 0 then
    release(members[i], n, now)
    if call('ZCOUNT', members[i].permits_key, score(now + NEAR), '+inf') > 0 then announce_release(members[i].name) end
    changed = true
  end
end

local earliest, grid, paused = now, nil, 1
for i, m in ipairs(members) do
  if m.pause > earliest then earliest, paused = m.pause, i end
  if m.grid then grid = max(grid or 0, m.grid) end
end

-- place returns the earliest time from which all members have room for ns,
-- how often, and the member that decided. T only grows; it is found when no
-- member moves it any more.
local rooms = {}
local function place(ns, from)
  local T, tight, settled, i = from, paused, 0, 1
  while settled < M do
    local t, room = fit(members[i], ns[i], T, now)
    rooms[i] = room
    if t > T then
      T, tight, settled = t, i, 1
      if grid then
        local _, high = bucket(grid, T)
        if high > T then T, settled = high, 0 end
      end
    else
      settled = settled + 1
    end
    i = i % M + 1
  end
  local times = math.huge
  for k = 1, M do times = min(times, floor(rooms[k] / ns[k])) end
  return T, max(times, 1), tight
end

local function grant(ns, T, times)
  for i, m in ipairs(members) do
    local x = ns[i] * times
    if not m.grants[T] then
      m.grants[T] = 0
      m.order[#m.order + 1] = T
    end
    m.grants[T] = m.grants[T] + x
    m.value = m.value - x
    if m.s then insert(m, T, x) end
    if m.frontier and m.frontier.s and T >= m.frontier.at then
      extend(m, T, x)
    else
      m.frontier = nil
    end
  end
  changed = true
end

-- Beyond near, clients that contend have equal shares of what the horizon
-- holds, so that none takes all of it before the others ask. Nearer places are
-- anybody's: a share that is not used is not lost.
local contenders = 0
local shares = {}
local function share_out()
  for i, m in ipairs(members) do
    if not m.per_client then
      local horizon = max(m.interval, 1000000)
      -- Who is there already is only seen again; the rest can wait for a refresh.
      if call('ZADD', KEYS[m.k + 5], int(max(now, m.epoch)), client) == 1 or refresh[i] or m.keep > 0 then check_in(m, client, now) end
      local n = max(1, call('ZCOUNT', KEYS[m.k + 5], int(now - 2 * horizon), '+inf'))
      contenders = max(contenders, n)
      if n > 1 then shares[i] = max(1, floor(m.rate * horizon / m.W / n)) end
    end
  end
  contenders = max(contenders, 1)
end

local function within_share(ns, times)
  if contenders == 0 then share_out() end
  for i, share in pairs(shares) do
    -- One more than fits, so that a share smaller than a big request does not bar it.
    local least = ahead[i] < share and 1 or 0
    times = min(times, max(least, floor((share - ahead[i]) / ns[i])))
  end
  return times
end

local runs, blocked = {}, false
for r = 1, take_number() do
  local longest, reach, near, lead, count, ns = take_number(), take_number(), take_number(), take_number(), take_number(), {}
  for i = 1, M do ns[i] = take_number() end
  local given, rest = {}, { 0 }
  local over
  for i, m in ipairs(members) do
    if ns[i] > m.rate then over = over or i end
  end
  if over then
    rest = { 2, over - 1, members[over].rate }
  elseif longest < 0 then
    for i, m in ipairs(members) do
      count = min(count, floor((m.value - m.rate / 2) / ns[i]))
      if m.smooth or m.calendar or m.pause > now then count = 0 end
    end
    if count > 0 then
      grant(ns, now, count)
      given = { count, 0 }
    end
  else
    local from = max(earliest, now + lead)
    if grid and lead > 0 then -- else each exchange would be an entry of its own
      local _, high = bucket(grid, from)
      if high - now <= longest then from = high end
    end
    while count > 0 do
      local T, times, tight = place(ns, from)
      local wait = T - now
      times = min(times, count)
      if wait > near and longest > near then times = within_share(ns, times) end
      if wait > reach or times < 1 or blocked and longest > 0 then
        if wait > longest then
          rest = { 1, wait, tight - 1 }
        else
          rest = { 3, wait, tight - 1 }
          blocked = true
        end
        break
      end
      grant(ns, T, times)
      if wait > 0 then
        for i = 1, M do ahead[i] = ahead[i] + ns[i] * times end
      end
      count = count - times
      given[#given + 1] = times
      given[#given + 1] = wait
      from = T
    end
  end
  runs[r] = { given, rest }
end

local ttl = nil
local longest_W = 0
for i, m in ipairs(members) do
  write(m, now)
  local frontier = not m.per_client and keep_frontier(m, now)
  if frontier then
    call('HSET', m.name, 'frontier', frontier)
  elseif m.kept and (m.dirty or #m.order > 0) then
    call('HDEL', m.name, 'frontier')
  end
  if m.dirty or #m.order > 0 then
    call('SET', m.value_key, int(m.value), 'KEEPTTL')
    -- Keys that were there have what Expire, or Redisson's, gave them.
    if not (m.stays and last) or refresh[i] then
      local t = expire(m, now)
      if t and not m.per_client then ttl = min(ttl or t, t) end
    end
  end
  longest_W = max(longest_W, m.W)
end

for i, m in ipairs(members) do
  if m.seal == seal[i] then
    out[#out + 1], out[#out + 2] = ARGV[5 * i], '0' -- the epoch, too, is the one that the client has seen
  else
    say(m.epoch)
    say(1)
    out[#out + 1] = m.seal
    say(m.rate)
    say(m.interval)
    say(m.guard)
    say(m.per_client and 1 or 0)
    say(m.calendar and 1 or 0)
    say(m.smooth and 1 or 0)
  end
end
say(contenders)
for _, run in ipairs(runs) do
  say(#run[1] / 2)
  for _, x in ipairs(run[1]) do say(x) end
  for _, x in ipairs(run[2]) do say(x) end
end

local body = table.concat(out, ' ')
if changed then
  local kept = min(max(ceil(longest_W / 1000), 10000), 60000)
  call('SET', KEYS[1], ARGV[1] .. ' ' .. body, 'PX', int(min(kept, ttl or kept)))
end
return at .. ' ' .. body

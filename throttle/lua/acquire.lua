-- Gives back, releases and grants permits of one limiter or of a group, for
-- all waiters of a client's queue at once, each exactly once however often
-- the script is repeated.
--
-- KEYS: 1 this queue's last reply, then SPAN keys for each member (log.lua)
-- ARGV: batch number (grows within the queue's key), client id, members M, plain (1: for fast.lua)
--       M x: seal last seen ('' none), epoch last seen (0 none), refresh (1: rebuild the cached value), configuration to create it with
--            (rate:interval:type:keepAlive:guard:smooth:window:offset) or '', permits this queue has reserved ahead
--       number of returns, each: time, M x epoch, M x permits
--       M x permits to release from the oldest grants
--       number of runs, each: longest wait us, reach us (how far ahead places may be reserved), near us (up to where
--            without regard to what other clients have), lead us (no earlier than so far ahead), count, M x permits
--            a longest wait of -1 asks for a prefetch: up to count now, as long as half of the limit stays free
-- reply: one string of integers (and seals), separated by spaces:
--   now us, status: 0, or 1 member (not initialized), or 2 (an older batch than the last one)
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
local batch, client, M, _ = take_number(), take(), take_number(), take()

local last = call('GET', KEYS[1])
if last then
  local seq, body = string.match(last, '^(%d+) (.*)$')
  if seq and tonumber(seq) == batch then return format('%.0f ', now) .. body end
  if seq and tonumber(seq) > batch then return format('%.0f 2', now) end
end

local out = { '0', format('%.0f', now) }
local function say(n) out[#out + 1] = format('%.0f', n) end

-- Everything is read before anything is written: an error leaves no half-done batch.
local members, seal, seen, refresh, create, ahead = {}, {}, {}, {}, {}, {}
for i = 1, M do
  seal[i], seen[i], refresh[i], create[i], ahead[i] = take(), take_number(), take() == '1', take(), take_number()
  local k = 2 + (i - 1) * SPAN
  members[i] = open(k) or false
end
for i = 1, M do
  if not members[i] and create[i] == '' then return format('%.0f 1 %d', now, i - 1) end
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

-- An entry from beyond any horizon was written under another clock. It counts
-- from now on, so that it delays, but not for long.
local function heal(m)
  call('ZREMRANGEBYSCORE', m.permits_key, '(' .. score(bound(m, now)), '+inf')
  local x = min(m.beyond, m.rate)
  call('ZADD', m.permits_key, score(now), pack_entry(now, x))
  insert(m, now, x)
  m.value, m.beyond, m.dirty = m.value + m.beyond - x, 0, true
end

-- Merges old entries within their buckets: their weight moves to the latest
-- of them, so no window that is still to come counts less.
local function compact(m)
  local raw = call('ZRANGEBYSCORE', m.permits_key, '-inf', score(now), 'WITHSCORES', 'LIMIT', 0, COMPACT / 2)
  local add, t, w, stop = {}, nil, 0, nil
  for i = 1, #raw, 2 do
    local u = time_of(raw[i + 1])
    if stop and u > stop then
      add[#add + 1], add[#add + 2] = score(t), pack_entry(t, w)
      w = 0
    end
    t, w, stop = u, w + weight(raw[i]), bucket_end(m.W, u)
  end
  if not t then return end
  add[#add + 1], add[#add + 2] = score(t), pack_entry(t, w)
  call('ZREMRANGEBYRANK', m.permits_key, 0, #raw / 2 - 1)
  call('ZADD', m.permits_key, unpack(add))
end

local function check_in(m)
  call('ZADD', KEYS[m.k + 5], max(now, m.epoch), client)
  call('ZREMRANGEBYSCORE', KEYS[m.k + 5], '-inf', now - PRESENCE * 1000 - 3 * m.W)
  call('PEXPIRE', KEYS[m.k + 5], PRESENCE + ceil(3 * m.W / 1000))
end

-- Brings a member up to date: a configuration changed by others, entries that
-- expired, a cache that may be wrong.
local function update(i, m)
  local rebuild = refresh[i] or seen[i] ~= m.epoch or not m.cached or m.card == 0 and m.cached ~= m.rate
  if m.foreign then
    m.cached = nil
    change(m, now)
    rebuild = true
  elseif m.pause > 0 and m.pause <= now then
    m.pause = 0
    write_seal(m)
  end
  if m.per_client and (refresh[i] or seen[i] ~= m.epoch) then
    local at = tonumber(call('ZSCORE', KEYS[m.k + 5], client) or 0)
    if at < m.reset then
      call('DEL', m.permits_key)
    elseif at < m.epoch then
      drop_places(m, m.epoch + NEAR)
    end
    check_in(m)
  end
  local old = call('ZRANGEBYSCORE', m.permits_key, '-inf', score(cutoff(m, now)), 'LIMIT', 0, PURGE)
  local freed = 0
  for _, e in ipairs(old) do freed = freed + weight(e) end
  if #old > 0 then call('ZREMRANGEBYRANK', m.permits_key, 0, #old - 1) end
  if m.card > COMPACT then compact(m) end
  m.value = rebuild and sum_log(m) or m.cached + freed
  if m.card > BUCKETS then m.grid = m.W end
  m.heal = heal
  m.dirty = rebuild or freed > 0
  if m.kept and not m.per_client and not m.foreign and m.card <= COMPACT then open_frontier(m, m.kept, now) end
end

for i = 1, M do update(i, members[i]) end

-- put adds an entry of x permits at t. One of the same microsecond and weight
-- is the same member: they become one.
local function put(m, t, x)
  while call('ZADD', m.permits_key, 'NX', score(t), pack_entry(t, x)) == 0 do
    call('ZREM', m.permits_key, pack_entry(t, x))
    x = 2 * x
  end
end

-- Takes n permits back out of the entry that holds the grant made for time t:
-- the one at t, or the one into which its bucket was merged.
local function give_back(m, t, n)
  local raw = call('ZRANGEBYSCORE', m.permits_key, score(t), score(bucket_end(m.W, t)), 'WITHSCORES', 'LIMIT', 0, 8)
  for i = 1, #raw, 2 do
    local u, w = time_of(raw[i + 1]), weight(raw[i])
    if w >= n and raw[i] == pack_entry(u, w) then
      call('ZREM', m.permits_key, raw[i])
      if w > n then put(m, u, w - n) end
      m.value = m.value + n
      m.dirty, m.frontier = true, nil
      return true
    end
  end
  return false
end

local changed = false
for _ = 1, take_number() do
  local t, epochs = take_number(), {}
  for i = 1, M do epochs[i] = take_number() end
  for i = 1, M do
    local n = take_number()
    -- A place of an older configuration was dropped, or stands: it is not ours to touch.
    if epochs[i] == members[i].epoch and give_back(members[i], t, n) then changed = true end
  end
end

-- Released permits come off the oldest grants: taking from newer ones could
-- let a window overflow.
local function release(m, n)
  while n > 0 do
    local raw = call('ZRANGEBYSCORE', m.permits_key, '(' .. score(cutoff(m, now)), score(now), 'WITHSCORES', 'LIMIT', 0, 64)
    if #raw == 0 then return end
    for i = 1, #raw, 2 do
      local t, w = time_of(raw[i + 1]), weight(raw[i])
      local x = min(w, n)
      call('ZREM', m.permits_key, raw[i])
      if w > x then put(m, t, w - x) end
      m.value, n = m.value + x, n - x
      m.dirty, m.frontier = true, nil
      if n == 0 then return end
    end
  end
end

for i = 1, M do
  local n = take_number()
  if n > 0 then
    release(members[i], n)
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
      check_in(m)
      local n = max(1, call('ZCOUNT', KEYS[m.k + 5], now - 2 * horizon, '+inf'))
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

-- Writes the grants of a member. In buckets, those of the present go into
-- their bucket's entry, which moves to now with them: later than their own
-- times and not later than now, so every window to come counts them.
local function write(m)
  for _, T in ipairs(m.order) do
    local x, held = m.grants[T]
    if T > now then
      held = call('ZRANGEBYSCORE', m.permits_key, score(T), score(T), 'WITHSCORES')
    elseif m.grid then
      local low = bucket(m.W, now)
      held = call('ZREVRANGEBYSCORE', m.permits_key, score(now), score(low), 'WITHSCORES', 'LIMIT', 0, 1)
    end
    local e = held and held[1]
    if e then
      local u, w = time_of(held[2]), weight(e)
      if e == pack_entry(u, w) then
        call('ZREM', m.permits_key, e)
        x, m.moved = x + w, m.moved or u ~= T
      end
    end
    put(m, T, x)
  end
end

-- Keys that only one process owns live as long as their entries count; others
-- follow keepAliveTime or the expiry given to the limiter.
local function expire(m)
  local need
  if m.keep > 0 or m.per_client then
    local last = call('ZREVRANGE', m.permits_key, 0, 0, 'WITHSCORES')[2]
    local latest = last and max(now, time_of(last)) or now
    need = ceil((latest + m.W - now) / 1000)
    if m.keep > 0 then
      need = max(need, m.keep)
      call('PEXPIRE', m.name, need)
    elseif m.cached and call('PTTL', m.permits_key) >= need then
      return nil
    else
      need = need + ceil(m.W / 4000)
    end
  else
    need = call('PTTL', m.name)
    if need <= 0 then return nil end
  end
  local keys = { m.value_key, m.permits_key }
  for _, key in ipairs(keys) do call('PEXPIRE', key, need) end
  return need
end

local ttl = nil
local longest_W = 0
for _, m in ipairs(members) do
  write(m)
  local frontier = not m.per_client and keep_frontier(m, now)
  if frontier then
    call('HSET', m.name, 'frontier', frontier)
  elseif m.kept and (m.dirty or #m.order > 0) then
    call('HDEL', m.name, 'frontier')
  end
  if m.dirty or #m.order > 0 then
    call('SET', m.value_key, format('%.0f', m.value), 'KEEPTTL')
    local t = expire(m)
    if t and not m.per_client then ttl = min(ttl or t, t) end
  end
  longest_W = max(longest_W, m.W)
end

for i, m in ipairs(members) do
  say(m.epoch)
  if m.seal == seal[i] then
    say(0)
  else
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
  call('SET', KEYS[1], format('%.0f ', batch) .. body, 'PX', min(kept, ttl or kept))
end
return format('%.0f ', now) .. body

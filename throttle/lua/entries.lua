-- What a batch changes in the log of a limiter, but for where its grants are to
-- be: entries that expired, were given back or released, and the lifetime of
-- the keys. Put after fit.lua, before acquire.lua.

-- put adds an entry of x permits at t. One of the same microsecond and weight
-- is the same member: they become one.
local function put(m, t, x)
  while call('ZADD', m.permits_key, 'NX', score(t), pack_entry(t, x)) == 0 do
    call('ZREM', m.permits_key, pack_entry(t, x))
    x = 2 * x
  end
end

-- check_in notes that a client was seen.
local function check_in(m, client, now)
  call('ZADD', KEYS[m.k + 5], max(now, m.epoch), client)
  call('ZREMRANGEBYSCORE', KEYS[m.k + 5], '-inf', now - PRESENCE * 1000 - 3 * m.W)
  local ttl = m.keep > 0 and not m.per_client and min(m.keep, PRESENCE) or PRESENCE
  call('PEXPIRE', KEYS[m.k + 5], ttl + ceil(3 * m.W / 1000))
end

-- Merges old entries within their buckets: their weight moves to the latest
-- of them, so no window that is still to come counts less.
local function compact(m, now)
  local raw = call('ZRANGEBYSCORE', m.permits_key, '-inf', score(now), 'WITHSCORES', 'LIMIT', 0, COMPACT)
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

-- For a clock that was set back, by an interval or more: what was used lately
-- seems to lie ahead, where no window of the present counts it. So all that lies
-- ahead counts from now on, and whoever has a place there asks for another.
local function set_back(m, now, by)
  local ahead = call('ZRANGEBYSCORE', m.permits_key, '(' .. score(now), '+inf')
  local sum = 0
  for _, e in ipairs(ahead) do sum = sum + weight(e) end
  if sum > 0 then
    call('ZREMRANGEBYSCORE', m.permits_key, '(' .. score(now), '+inf')
    put(m, m.calendar and now or now + NEAR, min(sum, m.rate)) -- places that are near may yet be used
  end
  if m.pause > now then m.pause = max(now, m.pause - by) end
  change(m, now)
  call('HDEL', m.name, 'frontier')
  m.cached, m.kept = nil, nil
end

-- Brings a member up to date: a configuration changed by others, entries that
-- expired, a cache that may be wrong.
local function update(m, client, refresh, seen, now)
  local rebuild = refresh or seen ~= m.epoch or not m.cached or m.cached > m.rate or m.card == 0 and m.cached ~= m.rate
  if m.foreign then
    m.cached = nil
    change(m, now)
    rebuild = true
  elseif m.pause > 0 and m.pause <= now then
    m.pause = 0
    write_seal(m)
  end
  if m.per_client and (refresh or seen ~= m.epoch) then
    local at = tonumber(call('ZSCORE', KEYS[m.k + 5], client) or 0)
    if at < (m.reset or whole(call('HGET', m.name, 'reset')) or 0) then
      call('DEL', m.permits_key)
    elseif at < m.epoch then
      drop_places(m, m.epoch + NEAR)
    end
    check_in(m, client, now)
  end
  local old = call('ZRANGEBYSCORE', m.permits_key, '-inf', score(cutoff(m, now)), 'LIMIT', '0', int(PURGE))
  local freed = 0
  for _, e in ipairs(old) do freed = freed + weight(e) end
  m.purged = #old < PURGE
  if #old > 0 then call('ZREMRANGEBYRANK', m.permits_key, '0', int(#old - 1)) end
  -- Its keys, whatever this call does. The seal of a limiter with an expiry of ours is never known.
  m.stays = m.known and m.cached and m.keep == 0 and not m.per_client and m.card - #old > 1
  local crowded = m.card > COMPACT and call('ZCOUNT', m.permits_key, '-inf', score(now)) > COMPACT
  if crowded then compact(m, now) end
  m.value = rebuild and sum_log(m) or m.cached + freed
  if m.card > BUCKETS then m.grid = m.W end
  m.dirty = rebuild or freed > 0
  if m.kept and not (m.per_client or m.foreign or crowded) then open_frontier(m, m.kept, old[1], now) end
end

-- Takes back up to n permits of the grant made for time t: out of the entry at
-- t, and of those up to the end of its bucket, into which it may have been
-- merged, or from which a release took what it owed to this one. Nothing if its
-- time is over: what is left in its bucket is others'.
local function give_back(m, t, n, now)
  if t <= cutoff(m, now) then return false end
  local raw = call('ZRANGEBYSCORE', m.permits_key, score(t), score(bucket_end(m.W, t)), 'WITHSCORES', 'LIMIT', 0, 8)
  local left = n
  for i = 1, #raw, 2 do
    local u, w = time_of(raw[i + 1]), weight(raw[i])
    if left > 0 and raw[i] == pack_entry(u, w) then
      local x = min(w, left)
      call('ZREM', m.permits_key, raw[i])
      if w > x then put(m, u, w - x) end
      left = left - x
    end
  end
  if left == n then return false end
  m.value = m.value + n - left
  m.dirty, m.frontier, m.stays = true, nil, false
  return true
end

-- Released permits come off the oldest grants: taking from newer ones could
-- let a window overflow.
local function release(m, n, now)
  while n > 0 do
    local raw = call('ZRANGEBYSCORE', m.permits_key, '(' .. score(cutoff(m, now)), score(now), 'WITHSCORES', 'LIMIT', 0, 64)
    if #raw == 0 then return end
    for i = 1, #raw, 2 do
      local t, w = time_of(raw[i + 1]), weight(raw[i])
      local x = min(w, n)
      call('ZREM', m.permits_key, raw[i])
      if w > x then put(m, t, w - x) end
      m.value, n = m.value + x, n - x
      m.dirty, m.frontier, m.stays = true, nil, false
      if n == 0 then return end
    end
  end
end

-- Redis packs a sorted set of up to 128 short members into one string: to find
-- one of them it reads the scores of all before it, digit by digit. A long
-- member ends that for good, also one that is gone at once.
local LONG = string.rep('-', 65)
local function unpack_log(m)
  call('ZADD', m.permits_key, '0', LONG)
  call('ZREM', m.permits_key, LONG)
end

-- Writes the grants of a member. In buckets, those of the present go into
-- their bucket's entry, which moves to now with them: later than their own
-- times and not later than now, so every window to come counts them.
local function write(m, now)
  local f = m.frontier
  for _, T in ipairs(m.order) do
    local x, low, e = m.grants[T], T, nil
    if T > now and f and f.held and T > f.from then
      e = f.held[T] -- all that lies there is known
    elseif T > now then
      local at = score(T)
      e = call('ZRANGEBYSCORE', m.permits_key, at, at, 'LIMIT', '0', '1')[1]
    elseif m.grid then
      low = bucket(m.W, now)
      e = call('ZREVRANGEBYSCORE', m.permits_key, score(now), score(low), 'LIMIT', '0', '1')[1]
    end
    if e then
      local u, w = own(e)
      if u and u >= low and u <= T then
        call('ZREM', m.permits_key, e)
        x, m.moved = x + w, m.moved or u ~= T
      end
    end
    put(m, T, x)
  end
  if m.card < UNPACK and m.card + #m.order >= UNPACK then unpack_log(m) end
end

-- Keys that only one process owns live as long as their entries count; others
-- follow keepAliveTime or the expiry given to the limiter.
local function expire(m, now)
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

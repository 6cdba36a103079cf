-- Every batch drops the entries of a limiter's log that expired, and writes its grants. This file
-- is put after frontier.lua, before acquire.lua.

-- purge drops at most PURGE of the entries that no longer count. It returns how many it dropped,
-- their permits, and the entry that was the oldest before that. It needs no scores if all entries
-- are ours: their own times show that, if these make sense. Then the rest of the page is noted,
-- too.
local function purge(m, now)
  local cut, limit = cutoff(m, now), bound(m, now)
  local page = call('ZRANGE', m.permits_key, '0', int(PAGE - 1))
  local n, freed, e = 0, 0, page[1]
  while e do
    local t, w = own(e)
    if t and t > cut and t <= limit then break end
    n = n + 1
    if not t or t > limit or t < cut - m.W or n == PAGE then -- not ours, old ones, or perhaps more than the page has
      page, freed = call('ZRANGEBYSCORE', m.permits_key, '-inf', score(cut), 'LIMIT', '0', int(PURGE)), 0
      n = #page
      for i = 1, n do freed = freed + weight(page[i]) end
      m.purged = n < PURGE
      if n > 0 then call('ZREMRANGEBYRANK', m.permits_key, '0', int(n - 1)) end
      return n, freed, page[1]
    end
    freed, e = freed + w, page[n + 1]
  end
  if n > 0 then call('ZREMRANGEBYRANK', m.permits_key, '0', int(n - 1)) end
  m.purged, m.page, m.skip, m.oldest = true, page, n, e
  return n, freed, page[1]
end

-- update brings a member up to date: a configuration changed by others, entries that expired, a
-- cached value that may be wrong.
local function update(m, client, refresh, seen, now, furthest)
  local rebuild = refresh or seen ~= m.epoch or not m.cached or m.cached > m.rate or m.cached < -LOWEST or m.card == 0 and m.cached ~= m.rate
  if m.foreign then
    m.cached = nil
    config().change(m, now, furthest)
    rebuild = true
  elseif m.pause > 0 and m.pause <= now then
    m.pause = 0
    config().write_seal(m)
  end
  if m.per_client and (refresh or seen ~= m.epoch) then
    local at = seen == m.epoch and m.epoch or tonumber(call('ZSCORE', m.clients_key, client) or 0) -- a client that has seen it was here after it
    if at < (m.reset or instant(call('HGET', m.name, 'reset')) or 0) then
      call('DEL', m.permits_key)
    elseif at < m.epoch then
      config().drop_reservations(m, max(min(m.epoch, now), (config().shown(m, now, furthest))) + config().near(m))
    end
    upkeep().check_in(m, client, now)
  end
  local old, freed, oldest = purge(m, now)
  -- stays: its keys stay, whatever this call does. A limiter with an expiry of ours is never a
  -- known one.
  m.stays = m.stays and m.cached and m.card - old > 1
  local crowded = m.card > COMPACT and call('ZCOUNT', m.permits_key, '-inf', score(now)) > COMPACT
  if crowded then
    upkeep().compact(m, now)
    m.page = false
  end
  m.value = rebuild and config().sum_log(m) or m.cached + freed
  -- If somebody had made the value too low, those may move up whose reservations are late because
  -- of that.
  if m.cached and m.value > m.cached + freed and call('ZCOUNT', m.permits_key, score(now + NEAR), '+inf') > 0 then
    config().announce_release(m.name)
  end
  if m.card > BUCKETS then m.grid = m.W end
  m.dirty = rebuild or freed > 0 or crowded -- after a merge, what was known of the log no longer holds
  if m.kept and m.text and oldest and not (m.per_client or m.foreign or crowded) then open_frontier(m, oldest, now) end
end

-- seen_clients notes that a client reserves ahead, and returns how many clients do.
local function seen_clients(m, client, refresh, now, at)
  -- A client that is there already only gets a new time; everything else can wait for a refresh.
  if call('ZADD', m.clients_key, m.epoch > now and int(m.epoch) or at, client) == 1 or refresh or m.keep > 0 then
    upkeep().check_in(m, client, now)
  end
  return max(1, call('ZCOUNT', m.clients_key, int(now - 2 * max(m.interval, 1000000)), '+inf'))
end

-- grant notes a grant of x permits at T.
local function grant(m, T, x)
  add(m.at, m.x, T, x)
  m.value = m.value - x
  if m.s then windows().insert(m, T, x) end
  local f = m.frontier
  if f and f.s and T >= f.at then
    extend(f, T, x)
  else
    m.frontier = nil
  end
end

-- write writes the grants of a member. In buckets, grants of the present go into the entry of their
-- bucket, and that entry moves to now: later than the times of its grants, but not later than now,
-- so every window to come counts them.
local function write(m, now)
  local f = m.frontier
  for i = 1, #m.at do
    local T, x, low, e = m.at[i], m.x[i], nil, nil
    if T > now then
      low = T
      if f and f.s and T > f.from then
        e = f.entries[T] -- everything that lies there is known
      elseif f and f.s and T == f.from then
        e = f.held > 0 and pack_entry(T, f.held)
      else
        local at = score(T)
        e = call('ZRANGEBYSCORE', m.permits_key, at, at, 'LIMIT', '0', '1')[1]
      end
    elseif m.grid then
      low = max((bucket(m.W, now)), cutoff(m, now) + 1) -- not what another calendar window counts
      e = call('ZREVRANGEBYSCORE', m.permits_key, score(now), score(low), 'LIMIT', '0', '1')[1]
    end
    if e then
      local u, w = own(e)
      if u and u >= low and u <= T and call('ZREM', m.permits_key, e) == 1 then
        x, m.moved = x + w, m.moved or u ~= T
      end
    end
    m.x[i] = put(m, T, x)
  end
  if m.card < UNPACK and m.card + #m.at >= UNPACK then upkeep().unpack_log(m) end
end

-- What a log needs now and then besides grants: entries that are given back, released, merged or of
-- another clock, and the lifetime of its keys.

-- bucket_end is the last microsecond of the bucket that contains t, and of t's calendar window.
local function bucket_end(m, t)
  local _, high = bucket(m.W, t)
  if high == t then _, high = bucket(m.W, t + 1) end
  local stop = max(t, high - 1)
  return m.calendar and min(stop, cutoff(m, t) + m.interval) or stop
end

-- check_in notes that a client was seen.
local function check_in(m, client, now)
  call('ZADD', m.clients_key, max(now, m.epoch), client)
  call('ZREMRANGEBYSCORE', m.clients_key, '-inf', now - PRESENCE * 1000 - 3 * m.W)
  config().keep_clients(m)
end

-- compact merges old entries within their buckets: their weight moves to the latest of them, so no
-- window that is still to come counts less.
local function compact(m, now)
  local raw = call('ZRANGEBYSCORE', m.permits_key, '-inf', score(now), 'WITHSCORES', 'LIMIT', 0, COMPACT)
  local merged, t, w, stop = {}, nil, 0, nil
  for i = 1, #raw, 2 do
    local u = time_of(raw[i + 1])
    if stop and u > stop then
      merged[#merged + 1], merged[#merged + 2] = score(t), pack_entry(t, w)
      w = 0
    end
    t, w, stop = u, w + weight(raw[i]), bucket_end(m, u)
  end
  if not t then return end
  merged[#merged + 1], merged[#merged + 2] = score(t), pack_entry(t, w)
  call('ZREMRANGEBYRANK', m.permits_key, 0, #raw / 2 - 1)
  call('ZADD', m.permits_key, unpack(merged))
end

-- recount makes all entries from a score on count from now on, together with sum more permits.
-- Owners of reservations there ask for others, but may still use those that are near. So the new
-- entries also fill the windows up to there.
local function recount(m, from, now, sum)
  for _, e in ipairs(call('ZRANGEBYSCORE', m.permits_key, from, '+inf')) do sum = sum + weight(e) end
  if sum == 0 then return end
  call('ZREMRANGEBYSCORE', m.permits_key, from, '+inf')
  local t = m.calendar and now or now + config().near(m)
  repeat
    put(m, t, min(sum, m.rate))
    t = t - m.W
  until t < now
end

-- lost reports whether a log is gone that may have had entries that count: a log that expires is
-- gone when nobody has written to it for long, by Redis's clock, which may have been set forward.
local function lost(m, client, by)
  if call('EXISTS', m.permits_key) == 1 then return false end
  if m.per_client then return call('ZSCORE', m.clients_key, client) and true end
  return m.keep > 0 and m.keep * 1000 < m.W + by
end

-- shift moves all entries forward by that much, but not to where reservations are dropped. Grants
-- made since the clock was set forward stay where they are. An entry that may be such a grant, or a
-- reservation, stays and is also moved. If nobody knows by how much to move, all entries count as
-- used now. If the log is lost, all of the limit does: it may have been used.
local function shift(m, client, now, by)
  local gone = lost(m, client, by or 0)
  if gone or not by then return recount(m, '-inf', now, gone and m.rate or 0) end
  local raw, latest = call('ZRANGE', m.permits_key, 0, -1, 'WITHSCORES'), now + config().near(m)
  call('DEL', m.permits_key)
  for i = 1, #raw, 2 do
    local t, w = time_of(raw[i + 1]), weight(raw[i])
    if t + by > now then put(m, t, w) end
    if t <= bound(m, now - by) then put(m, min(t + by, latest), w) end
  end
end

-- mind_clock: Redis's clock may be set back, and then forward to where it was.
--
-- A step back shows in the epoch, if that lies in the future, or in what the client knows (least,
-- furthest). If nobody has handled it, permits that were used lately seem to lie ahead, where no
-- window of the present counts them. mind_clock makes them count from now on (recount). Until the
-- clock has long passed the epoch, the limiter's hash says by how much the clock was set back
-- (back).
--
-- A step forward shows in a clock that has passed the epoch without having run there, as far as
-- this client has seen. Permits that were used lately then seem long past: they are moved forward
-- by as much (shift). Each client does this for its own log of a PER_CLIENT limit, if it has not
-- been here since (forward).
local function mind_clock(m, client, seen, least, furthest, now)
  local shown, back, forward = config().shown(m, now, furthest)
  if seen ~= m.epoch then least = max(least, shown) end
  local ran = now - least < m.W / 2 -- time has run on, for this client
  local by = least - now -- by how much the clock was set back since the last step was handled
  if by < m.W or not m.per_client and seen ~= m.epoch then by = max(shown, furthest) - now - (back or 0) end
  if by >= m.W or m.epoch > now + 1000 and not back then
    recount(m, '(' .. score(now), now, 0)
    if m.pause > now then m.pause = max(now, m.pause - (by >= m.W and by or m.epoch - now)) end
    m.epoch = max(m.epoch, least, shown, furthest)
    call('HSET', m.name, 'back', int(m.epoch - now))
    call('HDEL', m.name, 'shown')
  elseif back and m.epoch <= now then
    if seen == m.epoch and ran then
      if now - m.epoch > SETTLED then call('HDEL', m.name, 'back') end
      return
    end
    call('HDEL', m.name, 'back')
    shift(m, client, now, max(back, least > 0 and now - least or 0)) -- or more, as this client saw it
    call('HSET', m.name, 'forward', int(max(m.epoch, now) + 1))
  elseif back and max(least, furthest) - now > back then
    call('HSET', m.name, 'back', int(max(least, furthest) - now)) -- this client knows better by how much
    return
  elseif m.per_client and forward and seen > 0 and seen < forward and not ran then
    shift(m, client, now)
  else
    return
  end
  config().change(m, now, 0)
  call('HDEL', m.name, 'frontier')
  m.cached, m.kept = nil, nil
end

-- note_far notes how far ahead a client's reservations may lie that it uses without having heard of
-- a change, if that is more than NEAR.
local function note_far(m, far)
  local noted = whole(call('HGET', m.name, 'far'))
  if not noted or noted < far then call('HSET', m.name, 'far', int(min(far, FAR))) end
end

-- take_from takes up to n permits out of the entries from t to till. It takes nothing if t no
-- longer counts: what is left in its bucket belongs to others.
local function take_from(m, t, n, now, till)
  if t <= cutoff(m, now) then return false end
  local left, strange = n, 0 -- strange: entries of others, which stay
  repeat
    local raw = call('ZRANGEBYSCORE', m.permits_key, score(t), score(till), 'WITHSCORES', 'LIMIT', strange, 8)
    for i = 1, #raw, 2 do
      local u, w = time_of(raw[i + 1]), weight(raw[i])
      if raw[i] ~= pack_entry(u, w) then
        strange = strange + 1
      elseif left > 0 then
        local x = min(w, left)
        call('ZREM', m.permits_key, raw[i])
        if w > x then put(m, u, w - x) end
        left = left - x
      end
    end
  until left == 0 or #raw < 16 or strange > 64
  if left == n then return false end
  m.value = m.value + n - left
  m.dirty, m.frontier, m.stays, m.page, m.oldest = true, nil, false, false, nil
  return true
end

-- take_back takes back up to n permits of the grant made for time t: out of the entry at t, and out of those up to the end
-- of its bucket, into which the grant may have been merged. Entries for later than now were never merged. After a change of
-- the configuration (a pause, or another rate), only the entry at t is used: a grant that the change left in the log is
-- still there.
local function take_back(m, t, n, now, same)
  return take_from(m, t, n, now, same and min(bucket_end(m, t), max(t, now)) or t)
end

-- release takes permits off the oldest grants: taking from newer ones could let a window overflow.
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
      m.dirty, m.frontier, m.stays, m.page, m.oldest = true, nil, false, false, nil
      if n == 0 then return end
    end
  end
end

-- Redis packs a sorted set of up to 128 short members into one string: to find one of them it reads
-- the scores of all before it, digit by digit. A long member ends that for good, even if it is
-- removed at once.
local LONG = string.rep('-', 65)
local function unpack_log(m)
  call('ZADD', m.permits_key, '0', LONG)
  call('ZREM', m.permits_key, LONG)
end

-- expire: keys that only one process owns live as long as their entries count; others follow
-- keepAliveTime or the expiry given to the limiter. The hash of a pinned limiter stays: the rate
-- that an operator has set is not forgotten when nobody asks.
local function expire(m, now)
  local need
  if m.keep > 0 or m.per_client then
    local last = call('ZREVRANGE', m.permits_key, 0, 0, 'WITHSCORES')[2]
    local latest = last and max(now, time_of(last)) or now
    need = ceil((latest + m.W - now + max(m.epoch - now, 0)) / 1000) -- a clock that was set back may be set forward again
    if m.keep > 0 then
      need = config().lives(m, now, need)
      if not m.pinned then call('PEXPIRE', m.name, need) end
    elseif m.cached and call('PTTL', m.permits_key) >= need then
      return nil
    else
      need = need + ceil(m.W / 4000)
    end
  else
    need = call('PTTL', m.name)
    if need < 0 then return nil end
    need = max(need, 1) -- 0: less than 1 ms
  end
  local keys = { m.value_key, m.permits_key }
  for _, key in ipairs(keys) do call('PEXPIRE', key, need) end
  return need
end

return {
  check_in = check_in, compact = compact, mind_clock = mind_clock, note_far = note_far, take_back = take_back, release = release, unpack_log = unpack_log,
  expire = expire,
}

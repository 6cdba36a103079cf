-- What a log needs beside grants, now and then: entries that are given back,
-- released, merged or of another clock, and the lifetime of its keys.

-- bucket_end is the last microsecond of the bucket that contains t.
local function bucket_end(span, t)
  local _, high = bucket(span, t)
  if high > t then return high - 1 end
  _, high = bucket(span, t + 1)
  return high > t + 1 and high - 1 or t
end

-- check_in notes that a client was seen.
local function check_in(m, client, now)
  call('ZADD', m.clients_key, max(now, m.epoch), client)
  call('ZREMRANGEBYSCORE', m.clients_key, '-inf', now - PRESENCE * 1000 - 3 * m.W)
  local ttl = m.keep > 0 and not m.per_client and min(m.keep, PRESENCE) or PRESENCE
  call('PEXPIRE', m.clients_key, ttl + ceil(3 * m.W / 1000))
end

-- Merges old entries within their buckets: their weight moves to the latest
-- of them, so no window that is still to come counts less.
local function compact(m, now)
  local raw = call('ZRANGEBYSCORE', m.permits_key, '-inf', score(now), 'WITHSCORES', 'LIMIT', 0, COMPACT)
  local merged, t, w, stop = {}, nil, 0, nil
  for i = 1, #raw, 2 do
    local u = time_of(raw[i + 1])
    if stop and u > stop then
      merged[#merged + 1], merged[#merged + 2] = score(t), pack_entry(t, w)
      w = 0
    end
    t, w, stop = u, w + weight(raw[i]), bucket_end(m.W, u)
  end
  if not t then return end
  merged[#merged + 1], merged[#merged + 2] = score(t), pack_entry(t, w)
  call('ZREMRANGEBYRANK', m.permits_key, 0, #raw / 2 - 1)
  call('ZADD', m.permits_key, unpack(merged))
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
  config().change(m, now)
  call('HDEL', m.name, 'frontier')
  m.cached, m.kept = nil, nil
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
  m.dirty, m.frontier, m.stays, m.page, m.oldest = true, nil, false, false, nil
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
      m.dirty, m.frontier, m.stays, m.page, m.oldest = true, nil, false, false, nil
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

return {
  check_in = check_in, compact = compact, set_back = set_back, give_back = give_back, release = release, unpack_log = unpack_log,
  expire = expire,
}

-- The log of a limiter, and what every script needs to read and write it. This file is put between
-- prelude.lua and each verb's own text; it makes no call on its own.
--
-- Times are whole microseconds of Redis TIME. In Redis a score is the same
-- time in milliseconds with three decimals, as Redisson's scores are, and a
-- member is: length of an id, the id, the permits as uint32 little-endian.
-- An entry at s counts in every window (t - W, t] that contains s, where
-- W = interval + guard; in calendar windows it counts until its window ends.
--
-- Keys of one limiter, in this order (SPAN of them for each member of a group):
--   name, value, permits, value of this client, permits of this client, clients

-- int prints a whole number. Redis prints floats slowly, and its integers may
-- have no more than 32 bits.
local function int(n)
  if n > -2147483648 and n < 2147483648 then return format('%d', n) end
  if n < 0 or n >= 2147483648000000 then return format('%.0f', n) end
  return format('%d%06d', floor(n / 1000000), n % 1000000)
end

-- score prints t as the score it is stored by.
local function score(t)
  if t < 0 then return format('%.3f', t / 1000) end
  return format('%d%06d.%03d', floor(t / 1000000000), floor(t / 1000) % 1000000, t % 1000)
end
local function time_of(s) return floor(tonumber(s) * 1000 + 0.5) end

-- Our ids are the entry's own time: they make an entry unique, and show that it is ours.
local function pack_entry(t, w)
  local high, low = floor(t / 4294967296), t % 4294967296
  return char(8, 0, floor(high / 65536), floor(high / 256) % 256, high % 256,
    floor(low / 16777216), floor(low / 65536) % 256, floor(low / 256) % 256, low % 256,
    w % 256, floor(w / 256) % 256, floor(w / 65536) % 256, floor(w / 16777216) % 256)
end

-- weight is the permits of an entry, whoever wrote it; a damaged entry has none.
local function weight(e)
  local len = byte(e, 1)
  if not len or #e ~= len + 5 then return 0 end
  local a, b, c, d = byte(e, len + 2, len + 5)
  return a + b * 256 + c * 65536 + d * 16777216
end

-- entry_at returns the time and the permits of an entry of ours that begins after i bytes; nil if
-- it is not ours.
local function entry_at(e, i)
  local len, zero, a, b, c, d, f, g, h, j, k, l, m = byte(e, i + 1, i + 13)
  if len ~= 8 or zero ~= 0 or not m then return nil end
  return (a * 65536 + b * 256 + c) * 4294967296 + ((d * 256 + f) * 256 + g) * 256 + h, j + k * 256 + l * 65536 + m * 16777216
end

-- own returns the same of a single entry: it reads the id, which is faster than the score.
local function own(e)
  if #e == 13 then return entry_at(e, 0) end
end

-- add adds x permits at t to the times s, which are in order, and to their permits w. It returns
-- whether there was no entry at t before, and the index.
local function add(s, w, t, x)
  local n = #s
  local i = n
  while i > 0 and s[i] > t do i = i - 1 end
  if i > 0 and s[i] == t then
    w[i] = w[i] + x
    return false, i
  end
  if i < n then
    table.insert(s, i + 1, t)
    table.insert(w, i + 1, x)
  else
    s[n + 1], w[n + 1] = t, x
  end
  return true, i + 1
end

-- put adds an entry of x permits at t, and returns the entry's permits. Entries of the same
-- microsecond and weight are the same member, so they become one entry of twice the weight.
local function put(m, t, x)
  local at = score(t)
  while true do
    local e = pack_entry(t, x)
    if call('ZADD', m.permits_key, 'NX', at, e) == 1 then return x end
    call('ZREM', m.permits_key, e)
    x = 2 * x
  end
end

-- as_sealed makes a seal of the fields rate to pause of open; nil if one is missing.
local function as_sealed(h)
  for i = 3, 12 do
    if not h[i] then return nil end
  end
  return table.concat(h, ':', 3, 12)
end

-- open reads a limiter's configuration; nil if it has none. If the whole configuration is the one
-- that the caller knows, it needs no checks. open returns the configuration, the frontier
-- (frontier.lua), and whether the configuration was known.
local function open(k, known)
  local h = call('HMGET', KEYS[k], 'seal', 'frontier', 'rate', 'interval', 'type', 'keepAliveTime', 'guard', 'smooth', 'window',
    'offset', 'epoch', 'pause', 'reset', 'pinned')
  if h[1] and h[1] == known and as_sealed(h) == known then
    local interval, guard, own, calendar = h[4] * 1000, h[7] + 0, h[5] == '1' and 2 or 0, h[9] == '1'
    return {
      name = KEYS[k], value_key = KEYS[k + 1 + own], permits_key = KEYS[k + 2 + own], clients_key = KEYS[k + 5],
      rate = h[3] + 0, interval = interval, guard = guard, W = calendar and interval or interval + guard,
      per_client = own == 2, keep = h[6] + 0, smooth = h[8] == '1', calendar = calendar, offset = h[10] + 0,
      epoch = h[11] + 0, pause = h[12] + 0, seal = known, pinned = h[14] == '1',
    }, h[2], true
  end
  if not h[3] then return nil end
  return fields().read(k, h), h[2], false
end

-- bad_field is the reply to a call for a limiter whose configuration makes no sense.
local function bad_field(m) return redis.error_reply('BADFIELD ' .. m.bad) end

-- cutoff is the latest time whose entries no longer count at t: before the
-- calendar window that contains t, or before the window that ends with t.
local function cutoff(m, t)
  if m.calendar then return floor((t - m.offset) / m.interval) * m.interval + m.offset - 1 end
  return t - m.W
end

-- bound is the latest time that a reservation may have: an entry beyond it was written under
-- another clock.
local function bound(m, now)
  return now + max(m.interval, 1000000) + 2 * m.W + ceil(m.W / BUCKETS)
end

-- bucket returns the boundaries around t of the grid of span / BUCKETS, in
-- which boundary + span is again a boundary: low <= t, high >= t.
local function bucket(span, t)
  local base = floor(t / span) * span
  local x = (t - base) * BUCKETS
  local i = floor(x / span)
  local low = base + ceil(i * span / BUCKETS)
  if low > t then
    i = i - 1
    low = base + ceil(i * span / BUCKETS)
  end
  local high = base + ceil((i + 1) * span / BUCKETS)
  if high <= t then
    low, high = high, base + ceil((i + 2) * span / BUCKETS)
  end
  if low == t then high = t end
  return low, high
end

-- waits_for_bucket reports whether a grant of n that is due later waits for the end of its bucket, so that the log does not
-- grow with the rate. Of a smooth limit, grants that are further apart than that have entries of their own: the waits would
-- add up.
local function waits_for_bucket(m, n) return m.grid and not (m.smooth and BUCKETS * n >= m.rate) end

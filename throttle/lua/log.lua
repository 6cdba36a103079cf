-- The log of a limiter, and what every script reads and writes of it.
-- This file is put before each verb's own; it makes no call by itself.
--
-- Times are whole microseconds of Redis TIME. In Redis a score is the same
-- time in milliseconds with three decimals, as Redisson's scores are, and a
-- member is: length of an id, the id, the permits as uint32 little-endian.
-- An entry at s counts in every window (t - W, t] that contains s, where
-- W = interval + guard; in calendar windows it counts until its window ends.
--
-- Keys of one limiter, in this order (SPAN of them for each member of a group):
--   name, value, permits, value of this client, permits of this client, clients
local call, floor, ceil, max, min = redis.call, math.floor, math.ceil, math.max, math.min
local byte, char, format = string.byte, string.char, string.format

local SPAN = 6
local BUCKETS = 256    -- entries a log may hold before they fall into buckets
local PURGE = 256      -- expired entries one call drops at most
local COMPACT = 512    -- old entries, twice those of a log in buckets, that a call merges
local UNPACK = 32      -- entries from where a log is not to be packed
local NEAR = 100000    -- places nearer than this survive a change of configuration
local PRESENCE = 60000 -- ms for which a client counts as seen

local function clock()
  local t = call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

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

-- Our ids are the entry's own time, so that an entry is unique and known as ours.
local function pack_entry(t, w)
  local high, low = floor(t / 4294967296), t % 4294967296
  return char(8, 0, floor(high / 65536), floor(high / 256) % 256, high % 256,
    floor(low / 16777216), floor(low / 65536) % 256, floor(low / 256) % 256, low % 256,
    w % 256, floor(w / 256) % 256, floor(w / 65536) % 256, floor(w / 16777216) % 256)
end

-- weight is the permits of an entry, whoever wrote it; a damaged one weighs nothing.
local function weight(e)
  local len = byte(e, 1)
  if not len or #e ~= len + 5 then return 0 end
  local a, b, c, d = byte(e, len + 2, len + 5)
  return a + b * 256 + c * 65536 + d * 16777216
end

-- own returns the time and the permits of an entry of ours, which its id tells
-- sooner than its score; nil for another's.
local function own(e)
  local len, _, a, b, c, d, f, g, h, i, j, k, l, more = byte(e, 1, 14)
  if len ~= 8 or not l or more then return nil end
  return ((a * 256 + b) * 256 + c) * 4294967296 + ((d * 256 + f) * 256 + g) * 256 + h, i + j * 256 + k * 65536 + l * 16777216
end

local function whole(s)
  local n = tonumber(s)
  if n and n == floor(n) then return n end
  return nil
end

local function default_guard(interval)
  return floor(min(max(interval / 100, 3000), 50000, interval / 4))
end

-- The seal is the whole configuration in one string, written whenever one of
-- our scripts changes it: rate:interval ms:type:keepAlive ms:guard us:smooth:
-- window:offset us:epoch:pause. What a Redisson client changes does not match it.
local function write_seal(m)
  local keep = call('PTTL', m.name) > 0 and max(m.keep, 1) or m.keep -- not 0 for one that expires
  m.seal = format('%.0f:%.0f:%d:%.0f:%d:%d:%d:%.0f:%.0f:%.0f', m.rate, m.interval / 1000, m.per_client and 1 or 0, keep, m.guard,
    m.smooth and 1 or 0, m.calendar and 1 or 0, m.offset, m.epoch, m.pause)
  call('HSET', m.name, 'guard', m.guard, 'epoch', format('%.0f', m.epoch), 'pause', format('%.0f', m.pause), 'seal', m.seal)
end

-- open reads a limiter's configuration; nil when it has none that makes sense.
-- Where it is the one that the caller knows, in whole, its seal tells all.
local function open(k, known)
  if known and known ~= '' then
    local h = call('HMGET', KEYS[k], 'seal', 'rate', 'interval', 'type', 'keepAliveTime', 'frontier')
    if h[1] == known and h[2] and h[3] and h[4] and h[5] then
      local rate, interval, type, keep, guard, smooth, calendar, offset, epoch, pause =
        string.match(known, '^(%d+):(%d+):(%d):(%d+):(%d+):(%d):(%d):(%d+):(%d+):(%d+)$')
      if rate == h[2] and interval == h[3] and type == h[4] and keep == h[5] then
        local own = type == '1' and 2 or 0
        interval, guard = interval * 1000, tonumber(guard)
        return {
          k = k, name = KEYS[k], rate = tonumber(rate), interval = interval, per_client = type == '1',
          keep = tonumber(keep), smooth = smooth == '1', calendar = calendar == '1', offset = tonumber(offset),
          epoch = tonumber(epoch), pause = tonumber(pause), seal = known, known = true, kept = h[6], guard = guard, foreign = false,
          W = calendar == '1' and interval or interval + guard, value_key = KEYS[k + 1 + own], permits_key = KEYS[k + 2 + own],
          -- and room for what a call notes of it
          cached = false, card = 0, grants = false, order = false, value = 0, purged = false, grid = false, dirty = false,
          frontier = false, stays = false,
        }
      end
    end
  end
  local h = call('HMGET', KEYS[k], 'rate', 'interval', 'type', 'keepAliveTime', 'guard', 'smooth', 'window', 'offset',
    'epoch', 'reset', 'pause', 'seal', 'pinned', 'frontier')
  local rate, interval = whole(h[1]), whole(h[2])
  if not rate or not interval or rate < 1 or interval < 1 then return nil end
  local m = {
    k = k, name = KEYS[k], rate = rate, interval = interval * 1000, per_client = h[3] == '1',
    keep = whole(h[4]) or 0, smooth = h[6] == '1', calendar = h[7] == '1', offset = whole(h[8]) or 0,
    epoch = whole(h[9]) or 0, reset = whole(h[10]) or 0, pause = whole(h[11]) or 0, seal = h[12] or '', pinned = h[13] == '1',
    kept = h[14],
  }
  local shown = h[1] .. ':' .. h[2] .. ':' .. (h[3] or '0') .. ':'
  m.foreign = string.sub(m.seal, 1, #shown) ~= shown -- configured, or changed, by a Redisson client
  m.guard = whole(h[5])
  if not m.guard or m.guard > m.interval then m.guard = default_guard(m.interval) end
  m.W = m.calendar and m.interval or m.interval + m.guard
  local own = m.per_client and 2 or 0
  m.value_key, m.permits_key = KEYS[k + 1 + own], KEYS[k + 2 + own]
  return m
end

-- window_start is where the calendar window that contains t begins.
local function window_start(m, t)
  return floor((t - m.offset) / m.interval) * m.interval + m.offset
end

-- cutoff is the latest time whose entries no longer count at t.
local function cutoff(m, t)
  if m.calendar then return window_start(m, t) - 1 end
  return t - m.W
end

-- bound is the furthest that a place may lie ahead: what lies beyond was
-- written under another clock.
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

-- bucket_end is the last microsecond of the bucket that contains t.
local function bucket_end(span, t)
  local _, high = bucket(span, t)
  if high > t then return high - 1 end
  _, high = bucket(span, t + 1)
  return high > t + 1 and high - 1 or t
end

-- The operations that change a configuration keep their last replies in the
-- limiter's own hash, so that a repeated script changes nothing twice.
local function replayed(name, token)
  local ops = call('HGET', name, 'ops')
  if not ops then return nil end
  for t, reply in string.gmatch(ops, '([^=,]+)=([^,]*)') do
    if t == token then return reply end
  end
  return nil
end

local function remember(name, token, reply)
  local ops, n = token .. '=' .. reply, 1
  for op in string.gmatch(call('HGET', name, 'ops') or '', '[^,]+') do
    if n == 8 then break end
    ops, n = ops .. ',' .. op, n + 1
  end
  call('HSET', name, 'ops', ops)
end

-- clients_of lists the clients seen lately, at most 1000 of them.
local function clients_of(k)
  return call('ZREVRANGE', KEYS[k + 5], 0, 999)
end

-- drop_places removes what was reserved beyond t.
local function drop_places(m, t)
  call('ZREMRANGEBYSCORE', m.permits_key, '(' .. score(t), '+inf')
end

-- sum_log is the cached value as the log has it: what every entry leaves of the rate.
local function sum_log(m)
  local used = 0
  for _, e in ipairs(call('ZRANGE', m.permits_key, 0, -1)) do used = used + weight(e) end
  return m.rate - used
end

-- write_config stores a whole configuration given as
-- {rate, interval ms, type, keepAlive ms, guard us, smooth, window, offset us}
-- and returns the limiter at k as it now is.
local function write_config(k, c, epoch)
  call('HSET', KEYS[k], 'rate', c[1], 'interval', c[2], 'type', c[3], 'keepAliveTime', c[4], 'guard', c[5],
    'smooth', c[6], 'window', c[7], 'offset', c[8], 'layout', '1')
  if tonumber(c[4]) > 0 then
    call('PEXPIRE', KEYS[k], c[4])
  else
    for i = k, k + 2 do call('PERSIST', KEYS[i]) end -- its log too, if it had one
  end
  local m = open(k)
  m.epoch = epoch
  write_seal(m)
  m.foreign = false
  return m
end

-- create_config is write_config for a limiter that is not there, from
-- "rate:interval:type:keepAlive:guard:smooth:window:offset".
local function create_config(k, packed, now)
  local c = {}
  for field in string.gmatch(packed, '[^:]+') do c[#c + 1] = field end
  return write_config(k, c, now)
end

-- announce tells the clients that listen that a configuration has changed. A
-- user who may not publish only makes them learn it a little later.
local function announce(name) redis.pcall('PUBLISH', 'jobthrottle:changes', name) end

-- announce_release tells them that places which lie ahead may be had sooner.
local function announce_release(name) redis.pcall('PUBLISH', 'jobthrottle:releases', name) end

-- change raises the epoch, to one that no client can have been seen in, drops the
-- places that are not near, and brings the cached value up to date: the log as it
-- stands decides.
local function change(m, now)
  m.epoch = max(m.epoch, now) + 1
  write_seal(m)
  announce(m.name)
  drop_places(m, m.epoch + NEAR)
  if call('EXISTS', m.value_key) == 1 then
    call('SET', m.value_key, format('%.0f', sum_log(m)), 'KEEPTTL')
  end
end

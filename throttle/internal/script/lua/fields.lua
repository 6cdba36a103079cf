-- Reads a limiter's hash, field by field. Anybody may have written it: every number is checked
-- against its bounds before it is used.

local LONGEST = 31536000000 -- the longest interval, in ms

-- seal_of is the whole configuration in one string. An expiry that was given to the limiter counts
-- as a keepAlive in it, so that such a limiter is never a known one (open in log.lua).
local function seal_of(m, keep)
  return format('%.0f:%.0f:%d:%.0f:%.0f:%d:%d:%.0f:%.0f:%.0f', m.rate, m.interval / 1000, m.per_client and 1 or 0, keep, m.guard,
    m.smooth and 1 or 0, m.calendar and 1 or 0, m.offset, m.epoch, m.pause)
end

-- sealed reports whether the seal belongs to this configuration.
local function sealed(m)
  return m.seal == seal_of(m, m.keep) or m.keep == 0 and m.seal == seal_of(m, 1)
end

-- read makes a limiter from its fields, in the order of open in log.lua. If a field makes no sense
-- its name is in bad, and the limiter must not be used.
local function read(k, h)
  local m = { name = KEYS[k], clients_key = KEYS[k + 5], seal = h[1] or '', pinned = h[14] == '1', bad = false }
  local function number(name, i, low, high, fallback)
    if not h[i] and fallback then return fallback end
    local n = h[i] and whole(h[i])
    if n and n >= low and n <= high then return n end
    m.bad = m.bad or name
    return 0
  end
  m.rate, m.interval = number('rate', 3, 1, 4294967295), number('interval', 4, 1, LONGEST) * 1000
  m.per_client, m.keep = number('type', 5, 0, 1, 0) == 1, number('keepAliveTime', 6, 0, 100 * LONGEST, 0)
  m.smooth, m.calendar = number('smooth', 8, 0, 1, 0) == 1, number('window', 9, 0, 1, 0) == 1
  m.epoch, m.reset = number('epoch', 11, 0, LATEST, 0), instant(h[13]) or 0 -- of the latest reset
  m.pause = number('pause', 12, 0, clock() + 3000 * LONGEST, 0)
  local own = m.per_client and 2 or 0
  m.value_key, m.permits_key = KEYS[k + 1 + own], KEYS[k + 2 + own]

  -- A Redisson client that configures a limiter, or changes its interval, leaves our fields as they
  -- were.
  local shown = (h[3] or '') .. ':' .. (h[4] or '') .. ':' .. (h[5] or '0') .. ':'
  local theirs = sub(m.seal, 1, #shown) ~= shown
  m.guard, m.offset = number('guard', 7, 0, 1000 * LONGEST, -1), number('offset', 10, 0, 1000 * LONGEST, 0)
  if m.guard < 0 or theirs and m.guard > m.interval then
    m.guard = floor(min(max(m.interval / 100, 3000), 50000, m.interval / 4))
  end
  if theirs and m.interval > 0 then m.offset = m.offset % m.interval end
  if m.guard > m.interval or m.calendar and 4 * m.guard > m.interval then m.bad = m.bad or 'guard' end
  if m.offset > 0 and m.offset >= m.interval then m.bad = m.bad or 'offset' end
  m.W = m.calendar and m.interval or m.interval + m.guard
  m.foreign = not m.bad and not sealed(m) -- configured, or changed, by others
  return m
end

return { read = read, seal_of = seal_of }

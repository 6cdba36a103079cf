-- What the scripts of limits in flight share. This file is put before the text of each verb.
--
-- Keys of one limit, in this order (SPAN of them for each):
--   name  hash: in_flight, lease in ms, longest: the longest lease it had, in ms, fence: the newest
--   slots zset: id -> when its lease ends, in ms of Redis's clock
--   held  hash: id -> "fence token state claim since client", then " heir" in state s
--   line  zset: "token id" of who waits -> first arrival, in us of Redis's clock
--   seen  zset: token of a queue of waiters -> when it was here, in ms
--
-- The states: l is a lease; h is a slot that was handed to the head of the line, who has HANDED ms
-- to claim it; s is a lease whose id was claimed by another, the heir, who gets the slot when the
-- lease ends: such a lease is not renewed.

local call, floor, max, min, format, match = redis.call, math.floor, math.max, math.min, string.format, string.match

local SPAN = 5
local HANDED = 2000     -- ms in which a slot that was handed is to be claimed
local GONE = 3000       -- ms after which a queue that was not seen gets no slots
local DROPS = 1000      -- such waiters that one call drops at most
local LIVES = 3600000   -- ms that the keys live on after a call, at least
local MOST = 1000000    -- slots of a limit
local LATEST = 2 ^ 52

local function int(n) return format('%.0f', n) end

local function clock()
  local t = call('TIME')
  return t[1] * 1000 + floor(t[2] / 1000), t[1] * 1000000 + t[2]
end

-- open reads the limit at k. If limit and lease are given, a limit that does not exist is created
-- with them; if apply is '1', it is also changed to them, unless an operator has pinned it.
local function open(k, limit, lease, apply)
  local i = (k - 1) * SPAN
  local m = { name = KEYS[i + 1], slots = KEYS[i + 2], held = KEYS[i + 3], line = KEYS[i + 4], seen = KEYS[i + 5], key = i }
  local h = call('HMGET', m.name, 'in_flight', 'lease', 'longest', 'fence', 'rate', 'pinned')
  if h[5] then
    m.bad = 'RATED'
    return m
  end
  if limit and (not h[1] or apply == '1' and h[6] ~= '1' and (h[1] ~= limit or h[2] ~= lease)) then
    call('HSET', m.name, 'in_flight', limit, 'lease', lease)
    h[1], h[2] = limit, lease
  end
  m.there = h[1]
  local function number(field, text, low, high)
    local n = tonumber(text or nil)
    if n and n == floor(n) and n >= low and n <= high then return n end
    m.bad = m.bad or 'BADFIELD ' .. field
    return low
  end
  if not m.there then return m end
  m.limit, m.lease = number('in_flight', h[1], 1, MOST), number('lease', h[2], 3000, 86400000)
  m.fence, m.longest = tonumber(h[4] or nil), tonumber(h[3] or nil)
  if not (m.fence and m.fence == floor(m.fence) and m.fence >= 0 and m.fence <= LATEST) then m.fence = 0 end
  if not (m.longest and m.longest >= m.lease and m.longest <= 86400000) then
    m.longest = m.lease
    if limit then call('HSET', m.name, 'longest', m.longest) end
  end
  return m
end

-- read parses what is held; nil if nothing is, or if it makes no sense.
local function read(text)
  if not text then return nil end
  local fence, token, state, claim, since, rest = match(text, '^(%d+) (%S+) (%a) (%d+) (%d+) (.*)$')
  return fence and { fence = fence, token = token, state = state, claim = claim, since = since, rest = rest }
end

-- hand hands a slot to one that waits, and tells its process.
local function hand(m, token, id, now)
  call('ZADD', m.slots, int(now + HANDED), id)
  call('HSET', m.held, id, '0 ' .. token .. ' h 0 ' .. int(now) .. ' ')
  redis.pcall('PUBLISH', 'jobthrottle:slots:' .. match(token, '^%x*'), token .. ' ' .. id)
end

-- present reports whether a queue of waiters was seen lately.
local function present(m, token, now)
  local seen = tonumber(call('ZSCORE', m.seen, token) or nil)
  return seen and seen > now - GONE and seen < now + GONE
end

-- free takes the slot of an id back. The heir of a lease gets it next.
local function free(m, id, h, now)
  local heir = h and h.state == 's' and match(h.rest, '(%S+)$')
  if heir and present(m, heir, now) then
    hand(m, heir, id, now)
  else
    call('ZREM', m.slots, id)
    call('HDEL', m.held, id)
  end
end

-- settle ends the leases whose time is over, and hands what is free to the head of the line. Then
-- m.free is the number of slots that nobody waits for.
local function settle(m, now, us)
  for _, id in ipairs(call('ZRANGEBYSCORE', m.slots, '-inf', int(now), 'LIMIT', 0, DROPS)) do
    free(m, id, read(call('HGET', m.held, id)), now)
  end
  -- No lease ends so late unless Redis's clock was set back. Their holders renew them.
  for _, id in ipairs(call('ZRANGEBYSCORE', m.slots, int(now + m.longest + 1000), '+inf', 'LIMIT', 0, DROPS)) do
    call('ZADD', m.slots, int(now + m.longest), id)
  end
  -- Nobody came later than now: the clock was set back. Who waits keeps the order, and is before those who come.
  local later = call('ZRANGEBYSCORE', m.line, int(us + 1000000), '+inf', 'LIMIT', 0, DROPS)
  for i, waiter in ipairs(later) do call('ZADD', m.line, int(us - #later + i), waiter) end
  m.free = m.limit - call('ZCARD', m.slots)
  local drops = 0
  while m.free > 0 and drops < DROPS do
    local heads = call('ZRANGE', m.line, 0, min(m.free, 100) - 1)
    if #heads == 0 then break end
    for _, head in ipairs(heads) do
      call('ZREM', m.line, head)
      local token, id = match(head, '^(%S+) (.*)$')
      if not token or not present(m, token, now) or call('HEXISTS', m.held, id) == 1 then
        drops = drops + 1 -- if it still waits, it asks again
      else
        hand(m, token, id, now)
        m.free = m.free - 1
      end
    end
  end
end

-- keep renews the lifetime of a limit's keys.
local function keep(m)
  local ms = int(max(LIVES, 2 * m.longest))
  for i = m.key + 1, m.key + SPAN do call('PEXPIRE', KEYS[i], ms) end
end

-- Where permits fit into a log: the earliest time at which every window that
-- contains it still holds at most the rate. Put after log.lua, before a verb.

local PAGE = 8 -- entries read at first where few are needed

-- load_log reads the entries that count, or will: s times, w permits, p prefix
-- sums.
local function load_log(m, now)
  local raw = call('ZRANGEBYSCORE', m.permits_key, '(' .. score(cutoff(m, now)), '+inf', 'WITHSCORES')
  local s, w, p, n = {}, {}, { [0] = 0 }, 0
  local limit = bound(m, now)
  local beyond = 0
  for i = 1, #raw, 2 do
    local t, x = time_of(raw[i + 1]), weight(raw[i])
    if t > limit then
      beyond = beyond + x
    elseif x > 0 then
      n = n + 1
      s[n], w[n], p[n] = t, x, p[n - 1] + x
    end
  end
  m.s, m.w, m.p, m.n, m.beyond = s, w, p, n, beyond
end

-- insert adds permits at t to the loaded log.
local function insert(m, t, x)
  local s, w, p, n = m.s, m.w, m.p, m.n
  local i = n
  while i > 0 and s[i] > t do i = i - 1 end
  if i > 0 and s[i] == t then
    w[i] = w[i] + x
  else
    i = i + 1
    table.insert(s, i, t)
    table.insert(w, i, x)
    n = n + 1
    m.n = n
  end
  for j = i, n do p[j] = p[j - 1] + w[j] end
end

-- above is the first index whose time is later than t.
local function above(m, t)
  local s, lo, hi = m.s, 1, m.n + 1
  while lo < hi do
    local mid = floor((lo + hi) / 2)
    if s[mid] > t then hi = mid else lo = mid + 1 end
  end
  return lo
end

-- fit_sliding returns the earliest T >= from such that n more permits at T
-- keep every window that contains T within the rate, and how many permits
-- there is room for at T. One pass over the events after from: the load rises
-- at an entry and falls W after it; T is the first moment from which it stays
-- low enough for W.
local function fit_sliding(m, n, from)
  local s, w, p, N, W, cap = m.s, m.w, m.p, m.n, m.W, m.rate - n
  local i, j = above(m, from), above(m, from - W)
  local load = p[i - 1] - p[j - 1]
  local T, peak = nil, load
  if load <= cap then T = from end
  while true do
    local rise = s[i]
    if T and (not rise or rise >= T + W) then return T, m.rate - peak end
    if j < i and (not rise or s[j] + W <= rise) then
      local t = s[j] + W
      repeat
        load = load - w[j]
        j = j + 1
      until j >= i or s[j] + W > t
      if not T and load <= cap then T, peak = t, load end
    else
      load = load + w[i]
      i = i + 1
      if load > cap then
        T = nil
      elseif T and load > peak then
        peak = load
      end
    end
  end
end

-- The frontier of a log is a time F for which it is known that n permits fit no
-- earlier, with the load at F. Grants at F or later keep it true, and so does
-- time; so a busy log need not be read from now on, but only from F on: what
-- falls after it, a page at a time, and what lies ahead. It is kept in the
-- limiter's hash as "F - now, load, n, value, epoch, now, entries after F, oldest
-- entry" and holds as long as nobody else has written since: no other value, no
-- other epoch. A value can only come back to what it was where something expired,
-- which our calls see to before anything else, and a Redisson client as it takes
-- permits: then the oldest entry is another. Now is a frontier too, whose load
-- follows from the cached value.

local function open_frontier(m, kept, oldest, now)
  local at, load, n, value, epoch, last, after, first = string.match(kept, '^(%d+) (%d+) (%d+) (%-?%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not at or tonumber(value) ~= m.cached or tonumber(epoch) ~= m.epoch then return end
  at, last = last + at, tonumber(last)
  if at <= now or last > now then return end
  if own(oldest or call('ZRANGE', m.permits_key, '0', '0')[1] or '') ~= tonumber(first) then return end
  m.frontier = { at = at, load = tonumber(load), least = tonumber(n), after = tonumber(after) }
end

-- extend adds a grant at t to what is known from the frontier on.
local function extend(m, t, x)
  local f = m.frontier
  local i = f.n
  while i > 0 and f.s[i] > t do i = i - 1 end
  if i > 0 and f.s[i] == t then
    f.w[i] = f.w[i] + x
  else
    i = i + 1
    table.insert(f.s, i, t)
    table.insert(f.w, i, x)
    f.n = f.n + 1
    if t <= f.at then f.rise = f.rise + 1 end
  end
  if t <= f.at then f.load = f.load + x end
end

-- load_frontier reads what lies ahead of F; falls are read as they are needed.
-- It returns false if that is not all ours, or needs healing.
local function load_frontier(m, now)
  local f = m.frontier
  local raw = f.after == 0 and {} or call('ZRANGEBYSCORE', m.permits_key, '(' .. score(f.at), '+inf')
  f = {
    at = f.at, load = f.load, least = f.least, after = #raw, held = {}, broken = false,
    s = {}, w = {}, n = 0, rise = 1, fs = {}, fw = {}, fall = 1, read = 0, more = true, from = f.at, page = PAGE,
  }
  m.frontier = f
  local sum = 0
  for k = 1, #raw do
    local t, w = own(raw[k])
    if not t or t < (f.s[k - 1] or f.at + 1) then return false end
    f.s[k], f.w[k], f.n, sum, f.held[t] = t, w, k, sum + w, raw[k]
  end
  if f.n > 0 and f.s[f.n] > bound(m, now) then return false end
  if not f.load then
    f.load = m.rate - m.value - sum
    for _, t in ipairs(m.order) do f.load = f.load - m.grants[t] end
    for _, t in ipairs(m.order) do extend(m, t, m.grants[t]) end
  end
  return true
end

-- falling returns when the k-th of the entries that fall after F counts no
-- more, and its permits: first those up to where F was, then those ahead.
local function falling(m, k)
  local f = m.frontier
  if k > f.read and f.more then
    local raw = call('ZRANGEBYSCORE', m.permits_key, '(' .. score(f.from - m.W), score(f.from), 'LIMIT', int(f.read), int(f.page))
    for i = 1, #raw do
      local t, w = own(raw[i])
      if not t or t < (f.fs[f.read] or f.from - m.W) or t > f.from then f.broken, t, w = true, f.from, weight(raw[i]) end
      f.read = f.read + 1
      f.fs[f.read], f.fw[f.read] = t, w
    end
    f.more, f.page = #raw == f.page, 2 * f.page
  end
  if k <= f.read then return f.fs[k] + m.W, f.fw[k] end
  local i = k - f.read
  if i > f.n then return nil end
  return f.s[i] + m.W, f.w[i]
end

-- fit_frontier is fit_sliding from F on, for at least the frontier's n.
local function fit_frontier(m, n, from, now)
  if not m.frontier.s and not load_frontier(m, now) then return nil end
  local f = m.frontier
  local cap, load, i, j, t = m.rate - n, f.load, f.rise, f.fall, f.at
  local T, peak, at
  local function settle()
    if not T and load <= cap then T = max(t, from) end
    if T and t <= T then peak, at = load, { load = load, rise = i, fall = j } end
  end
  settle()
  while true do
    local rise = f.s[i]
    local fall, x = falling(m, j)
    local first = rise and fall and min(rise, fall) or rise or fall
    if not first and not T then return nil end -- the load does not add up: somebody else wrote
    if T and (not first or first > T) and (not rise or rise >= T + m.W) then break end
    t = first
    if fall == first then
      load, j = load - x, j + 1
    else
      load, i = load + f.w[i], i + 1
      if load > cap then
        T = nil
      elseif T then
        peak = max(peak, load)
      end
    end
    settle()
  end
  if f.broken then return nil end -- another's entries among ours
  if from <= f.at and n == f.least then
    f.at, f.load, f.rise, f.fall = T, at.load, at.rise, at.fall
  end
  return T, m.rate - peak
end

-- fit_calendar is fit for fixed windows; nothing is granted within guard of a
-- boundary, because the API's clock is not ours.
local function fit_calendar(m, n, from)
  local t = from
  while true do
    local start = window_start(m, t)
    local stop = start + m.interval
    t = max(t, start + m.guard)
    if t < stop - m.guard then
      local load = m.p[above(m, stop - 1) - 1] - m.p[above(m, start - 1) - 1]
      if load + n <= m.rate then return t, m.rate - load end
    end
    t = stop + m.guard
  end
end

-- fit_smooth returns the earliest T >= from that keeps its distance: n * W /
-- rate after the entry before it, and the next entry's own after it. In
-- buckets it is the share of a bucket that may not be exceeded.
local function fit_smooth(m, n, from)
  local t, step = from, ceil(n * m.W / m.rate)
  local grid = m.grid and ceil(m.W / BUCKETS)
  local share = m.grid and ceil(m.rate / BUCKETS) or 0
  while true do
    local i = above(m, t)
    local before, after = m.s[i - 1], m.s[i]
    local gap = after and ceil(m.w[i] * m.W / m.rate)
    if grid and gap then gap = min(gap, grid) end
    if before == t and m.w[i - 1] + n <= share then return t, share - m.w[i - 1] end
    if before and t < before + step then
      t = before + step
    elseif after and t + gap > after then
      t = after
      if not (m.w[i] + n <= share) then t = after + step end
    else
      return t, max(n, share)
    end
  end
end

-- An entry from beyond any horizon was written under another clock. It counts
-- from now on, so that it delays, but not for long.
local function heal(m, now)
  call('ZREMRANGEBYSCORE', m.permits_key, '(' .. score(bound(m, now)), '+inf')
  local x = min(m.beyond, m.rate)
  call('ZADD', m.permits_key, score(now), pack_entry(now, x))
  insert(m, now, x)
  m.value, m.beyond, m.dirty = m.value + m.beyond - x, 0, true
end

-- read_log makes the whole log known, what this call has granted included.
local function read_log(m, now)
  if m.s then return end
  load_log(m, now)
  if m.beyond > 0 then heal(m, now) end
  for _, t in ipairs(m.order) do insert(m, t, m.grants[t]) end
end

-- fit returns the earliest T >= from at which the limiter has room for n, and
-- the room there. The cached value counts every entry, past and ahead: as
-- long as it covers n, no window can overflow and the log need not be read.
local function fit(m, n, from, now)
  if m.calendar or m.smooth then
    read_log(m, now)
    local windows = m.calendar and fit_calendar or fit_sliding
    local t, room = windows(m, n, from)
    while m.smooth do
      local u, share = fit_smooth(m, n, t)
      room = min(room, share)
      if u == t then break end
      t, room = windows(m, n, u)
    end
    return t, room
  end
  if m.value >= n then return from, m.value end
  if not m.frontier and not m.s and m.purged then m.frontier = { at = now, least = n } end
  if m.frontier and n >= m.frontier.least then
    local T, room = fit_frontier(m, n, from, now)
    if T then return T, room end
  end
  m.frontier = nil
  read_log(m, now)
  return fit_sliding(m, n, from)
end

-- keep_frontier returns what is known of the log after a call, to be kept for
-- the next; nil if that is no more than anybody knows.
local function keep_frontier(m, now)
  local f = m.frontier
  if not f or m.s or m.moved or f.at <= now then return nil end
  local after = f.after
  if f.s then
    after = f.n
    while after > 0 and f.s[f.n - after + 1] <= f.at do after = after - 1 end
  end
  local first = own(call('ZRANGE', m.permits_key, '0', '0')[1] or '')
  if not first then return nil end
  return format('%s %d %d %d %s %s %d %s', int(f.at - now), f.load, f.least, m.value, int(m.epoch), int(now), after, int(first))
end

-- available is how many permits TryAcquire could take now.
local function available(m, now)
  if m.pause > now then return 0 end
  if not m.s then load_log(m, now) end
  if m.calendar then
    local start = window_start(m, now)
    if now < start + m.guard or now >= start + m.interval - m.guard then return 0 end
    return max(0, m.rate - (m.p[m.n] - m.p[above(m, start - 1) - 1]))
  end
  local t, room = fit_sliding(m, 0, now)
  if t > now then return 0 end
  return room
end


-- Finds where permits fit into a log that has to be read as a whole: the earliest time for which
-- every window that contains it still holds at most the rate.

-- load_log reads the entries that count now or later: s times, w permits, p prefix sums.
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

-- distance is how far n permits of a smooth limit come after what is before them.
local function distance(m, n)
  local d = n * m.W / m.rate
  return m.rounding > 0 and d or ceil(d)
end

-- retime notes for a smooth limit when the permits of each entry would have come if none waited for the end of a bucket
-- (real), and when they have to at the latest, because of the entries after them (last): the former from one entry on, the
-- latter from another back. The log does not say how long an entry waited. It was m.rounding at most, and the entry keeps its
-- distance from those before it.
local function retime(m, from, back)
  local s, w, real, last = m.s, m.w, m.real, m.last
  for k = from, m.n do
    local t = min(s[k], max(real[k - 1] or 0, s[k] - m.rounding) + distance(m, w[k]))
    if k > from and real[k] == t then break end
    real[k] = t
  end
  for k = back, 1, -1 do
    local t = s[k + 1] and max(real[k], min(s[k], last[k + 1] - distance(m, w[k + 1]))) or s[k]
    if k < back and last[k] == t then break end
    last[k] = t
  end
end

-- insert adds permits at t to the loaded log.
local function insert(m, t, x)
  local new, i = add(m.s, m.w, t, x)
  if new then m.n = m.n + 1 end
  for j = i, m.n do m.p[j] = m.p[j - 1] + m.w[j] end
  if m.real then
    if new then
      table.insert(m.real, i, t)
      table.insert(m.last, i, t)
    end
    retime(m, i, i)
  end
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

-- fit_sliding returns the earliest T >= from such that n more permits at T keep every window that
-- contains T within the rate, and how many permits there is room for at T. It is one pass over the
-- events after from: the load rises at an entry and falls W after it; T is the first time from
-- which it stays low enough for W.
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

-- fit_calendar is fit for fixed windows; nothing is granted within guard of a
-- boundary, because the API's clock is not ours.
local function fit_calendar(m, n, from)
  local t = from
  while true do
    local start = cutoff(m, t) + 1
    local stop = start + m.interval
    t = max(t, start + m.guard)
    if t < stop - m.guard then
      local load = m.p[above(m, stop - 1) - 1] - m.p[above(m, start - 1) - 1]
      if load + n <= m.rate then return t, m.rate - load end
    end
    t = stop + m.guard
  end
end

-- fit_smooth returns the earliest T >= from that keeps its distances: n * W / rate from the entry
-- before it, and the next entry's own distance to that one; and how many permits there is room for at T.
-- Permits that are less than a bucket apart wait for its end in a log in buckets (waits_for_bucket), and come
-- together. Their distances count from when they would have come (retime), so the rate is kept.
local function fit_smooth(m, n, from)
  if not m.real then
    m.real, m.last, m.rounding = {}, {}, waits_for_bucket(m, 1) and 2 * m.W / BUCKETS or 0
    retime(m, 1, m.n)
  end
  local t, d, rounding = from, distance(m, n), waits_for_bucket(m, n) and m.rounding or 0
  while true do
    local i = above(m, t)
    local before, after = m.real[i - 1] or 0, m.s[i]
    local base, stop = max(before, t - rounding), after and min(t, m.last[i] - distance(m, m.w[i])) or t
    if t < before + d then
      t = min(ceil(before + d), after or LATEST)
    elseif min(t, base + d) > stop then
      t = after
    else
      return t, max(n, floor((stop - base) * m.rate / m.W))
    end
  end
end

-- heal: an entry beyond any horizon was written under another clock. It counts from now on, so that
-- it delays others, but not for long.
local function heal(m, now)
  call('ZREMRANGEBYSCORE', m.permits_key, '(' .. score(bound(m, now)), '+inf')
  local x = min(m.beyond, m.rate)
  call('ZADD', m.permits_key, score(now), pack_entry(now, x))
  insert(m, now, x)
  m.value, m.beyond, m.dirty = m.value + m.beyond - x, 0, true
end

-- read_log reads the whole log, and adds what this call has granted.
local function read_log(m, now)
  if m.s then return end
  load_log(m, now)
  if m.beyond > 0 then heal(m, now) end
  for i = 1, #m.at do insert(m, m.at[i], m.x[i]) end
end

-- fit returns the earliest T >= from at which the limiter has room for n, and
-- the room there.
local function fit(m, n, from, now)
  read_log(m, now)
  if not (m.calendar or m.smooth) then return fit_sliding(m, n, from) end
  local fit_window = m.calendar and fit_calendar or fit_sliding
  local t, room = fit_window(m, n, from)
  while m.smooth do
    local u, share = fit_smooth(m, n, t)
    room = min(room, share)
    if u == t then break end
    t, room = fit_window(m, n, u)
  end
  return t, room
end

-- available is how many permits TryAcquire could take now.
local function available(m, now)
  if m.pause > now then return 0 end
  if not m.s then load_log(m, now) end
  if m.calendar then
    local start = cutoff(m, now) + 1
    if now < start + m.guard or now >= start + m.interval - m.guard then return 0 end
    return max(0, m.rate - (m.p[above(m, start + m.interval - 1) - 1] - m.p[above(m, start - 1) - 1]))
  end
  local t, room = fit_sliding(m, 0, now)
  if t > now then return 0 end
  return room
end

return { load_log = load_log, insert = insert, above = above, fit = fit, available = available }

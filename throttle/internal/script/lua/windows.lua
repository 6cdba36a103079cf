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

-- insert adds permits at t to the loaded log.
local function insert(m, t, x)
  local new, i = add(m.s, m.w, t, x)
  if new then m.n = m.n + 1 end
  for j = i, m.n do m.p[j] = m.p[j - 1] + m.w[j] end
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
-- before it, and the next entry's own distance to that one. In a log in buckets, a bucket may not
-- exceed its share of the rate.
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
    return max(0, m.rate - (m.p[m.n] - m.p[above(m, start - 1) - 1]))
  end
  local t, room = fit_sliding(m, 0, now)
  if t > now then return 0 end
  return room
end

return { load_log = load_log, insert = insert, above = above, fit = fit, available = available }

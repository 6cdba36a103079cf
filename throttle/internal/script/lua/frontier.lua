-- The frontier of a log is a time F for which it is known that n permits fit no earlier, with the
-- load at F. Grants at F or later do not change that, nor does time. So a busy log need not be read
-- from now on, but only from F on: the entries that fall out of the window after F, a page at a
-- time, and those that lie ahead of F. The frontier is kept in the limiter's hash, after what it
-- depends on: the seal, the value and the oldest entry. As long as these are the same, nobody else
-- has written. (A value can only return to what it was if something expired. Our calls drop what
-- expired before they do anything else, and a Redisson client does when it takes permits: then the
-- oldest entry is another one.) Now is a frontier, too: its load follows from the cached value.

local PAGE = 8 -- entries read at first, if few are needed
local NONE = {}

-- noted is a frontier before the log is read from there on.
local function noted(at, load, least, after, held, known)
  return {
    at = at, load = load, least = least, -- F, the load there, and n
    from = at, held = held, -- F as this call found it, and the permits of the entry there
    -- Where the load rises after F: how many entries Redis has there and, once they are read, the
    -- entries by their times, all times, their permits, and the index of the first that is not yet
    -- part of the load.
    after = after, entries = NONE, s = false, w = false, rise = 1,
    -- Where the load falls after F: the first entries up to F that count, how many of them were
    -- read, whether there may be more, and the index of the first that is still part of the load.
    known = known, read = #known / 13, more = true, fall = 1,
  }
end

-- open_frontier takes over the frontier that was kept, if it holds. oldest is the oldest entry
-- before this call.
local function open_frontier(m, oldest, now)
  local under = m.seal .. ' ' .. m.text .. ' ' .. oldest
  if sub(m.kept, 1, #under) ~= under then return end
  local last, ahead, load, least, after, held, known = match(m.kept, '^ (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$', #under + 1)
  if not last or last + 0 > now then return end
  local at = last + ahead
  if at <= now or at > bound(m, now) or max(#load, #least, #after, #held) > 15 then return end -- beyond these bounds they are somebody else's numbers
  m.frontier = noted(at, load + 0, least + 0, after + 0, held + 0, known)
end

-- keep_frontier returns what is known of the log after a call, to be kept for the next call; nil if
-- that is no more than every call knows.
local function keep_frontier(m, now, at)
  local f = m.frontier
  if not f or m.s or m.moved or f.at <= now then return nil end
  if not m.oldest then m.oldest = call('ZRANGE', m.permits_key, '0', '0')[1] end
  if not m.oldest or not own(m.oldest) then return nil end
  local after, held = f.after, f.held
  if f.s then
    local n = #f.s
    after = n
    while after > 0 and f.s[n - after + 1] <= f.at do after = after - 1 end
    if f.at > f.from then held = f.entries[f.at] and weight(f.entries[f.at]) or 0 end
  end
  local last = #m.at
  while last > 0 and m.at[last] > f.at do last = last - 1 end
  if m.at[last] == f.at then held = m.x[last] end -- as write left it
  local first, count = f.fall - 1, min(f.read, f.fall - 1 + PAGE)
  while count > first and entry_at(f.known, 13 * (count - 1)) == f.from do count = count - 1 end -- write may have replaced it
  return m.seal .. ' ' .. m.text .. ' ' .. m.oldest .. format(' %s %s %d %d %d %d ', at, int(f.at - now), f.load, f.least, after, held)
    .. sub(f.known, 13 * first + 1, 13 * count)
end

-- extend adds a grant at t to what is known from the frontier on.
local function extend(f, t, x)
  if add(f.s, f.w, t, x) and t <= f.at then f.rise = f.rise + 1 end
  if t <= f.at then f.load = f.load + x end
end

-- load_frontier reads the entries ahead of F; falls are read when they are needed. It returns false
-- if some of the entries are not ours, or need healing.
local function load_frontier(m, now)
  local f = m.frontier
  local raw = f.after == 0 and NONE or call('ZRANGEBYSCORE', m.permits_key, '(' .. score(f.at), '+inf')
  local s, w, entries, sum, last = {}, {}, #raw > 0 and {} or NONE, 0, f.at + 1
  for k = 1, #raw do
    local t, x = own(raw[k])
    if not t or t < last then return false end
    s[k], w[k], sum, last, entries[t] = t, x, sum + x, t, raw[k]
  end
  if #raw > 0 and last > bound(m, now) then return false end
  f.s, f.w, f.entries, f.after = s, w, entries, #raw
  if f.load then return true end

  -- F is now: the load follows from the value, and falls begin with the oldest entry.
  f.load = m.rate - m.value - sum
  for i = 1, #m.at do f.load = f.load - m.x[i] end
  for i = 1, #m.at do extend(f, m.at[i], m.x[i]) end
  if m.page then
    local n = max(m.skip, min(#m.page, m.card - #raw))
    for i = m.skip + 1, n do
      if #m.page[i] ~= 13 then return true end
    end
    f.known, f.read, f.more = table.concat(m.page, '', m.skip + 1, n), n - m.skip, n == PAGE
  end
  return true
end

-- falling returns when the k-th of the entries that fall after F stops counting, and its permits:
-- first the entries up to where F was, then those ahead. It returns false if the entry is not ours,
-- nil if there is none.
local function falling(m, f, k)
  if k > f.read and f.more then
    local size = max(PAGE, f.read)
    local raw = call('ZRANGEBYSCORE', m.permits_key, '(' .. score(f.from - m.W), score(f.from), 'LIMIT', int(f.read), int(size))
    for i = 1, #raw do
      if #raw[i] ~= 13 then return false end
    end
    f.known, f.read, f.more = f.known .. table.concat(raw), f.read + #raw, #raw == size
  end
  if k <= f.read then
    local t, x = entry_at(f.known, 13 * (k - 1))
    if not t or t > f.from or t <= f.from - m.W then return false end
    return t + m.W, x
  end
  local t = f.s[k - f.read]
  if not t then return nil end
  return t + m.W, f.w[k - f.read]
end

-- fit_frontier returns the earliest T >= from such that n more permits at T keep every window that
-- contains T within the rate, and how many permits there is room for at T. n must be at least the
-- frontier's. It is one pass from F on: the load rises at an entry and falls W after it; T is the
-- first time from which it stays low enough for W. It returns nil if what is known is not enough.
local function fit_frontier(m, n, from, now)
  local f = m.frontier
  if not f.s and not load_frontier(m, now) then return nil end
  local s, W, cap, load, i, j, t = f.s, m.W, m.rate - n, f.load, f.rise, f.fall, f.at
  local T, peak, at_load, at_rise, at_fall
  while true do
    if not T and load <= cap then T = max(t, from) end
    if T and t <= T then peak, at_load, at_rise, at_fall = load, load, i, j end
    local rise = s[i]
    local fall, x = falling(m, f, j)
    if fall == false or fall and fall < t then return nil end -- entries of others among ours
    local first = rise and fall and min(rise, fall) or rise or fall
    if not first and not T then return nil end -- the load does not add up: somebody else wrote
    if T and (not first or first > T) and (not rise or rise >= T + W) then break end
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
  end
  if from <= f.at and n == f.least then
    f.at, f.load, f.rise, f.fall = T, at_load, at_rise, at_fall
  end
  return T, m.rate - peak
end

-- fit returns the earliest T >= from at which the limiter has room for n, and
-- the room there. The cached value counts every entry, past and ahead: as
-- long as it covers n, no window can overflow and the log need not be read.
local function fit(m, n, from, now)
  if not (m.calendar or m.smooth) then
    if m.value >= n then return from, m.value end
    if not m.frontier and not m.s and m.purged then m.frontier = noted(now, nil, n, nil, 0, '') end
    if m.frontier and n >= m.frontier.least then
      local T, room = fit_frontier(m, n, from, now)
      if T then return T, room end
    end
    m.frontier = nil
  end
  return windows().fit(m, n, from, now)
end

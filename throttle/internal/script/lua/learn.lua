-- The rule by which a limit finds how much its API accepts. It is pure: it takes a state, what is
-- new, and the time, and calls nothing. adapt.lua stores the result.
--
-- A window is the time for which a permit counts. It is cut into SLICES. For each slice the state
-- has how many permits were granted (from the limiter's log), and how many of them were accepted
-- and refused (from the reports of the clients).
--
-- Evidence. In the window that ends with a refused permit, the API accepted at most the permits
-- that were granted and are not known to be refused. The API accepts no more than that: bound. This
-- is right for APIs that count in sliding or fixed windows and for those with a bucket, and it only
-- becomes better as reports come in. What was accepted in both of two full windows in a row is lo,
-- for MEMORY windows.
--
-- Events. The first refusal of a permit granted after the last cut begins an event: one cut for the
-- fleet, at once. Further refusals of permits granted after that cut are waves: the cut was not
-- enough, or the API's window is not over. The limit falls once more, and nobody asks for a quarter
-- of a window. An event ends a window and two delays of reports after it began or, if its waves
-- show that somebody else uses the API, a window and two delays after the last such wave. Then the
-- bound of the last refusal is the upper end of the bracket. A refusal far below what is known to
-- be accepted is doubtful: it cuts the limit to 0.7 of what it was, and only waves confirm it.
--
-- Growth, only in windows that are 9/10 used and fully accepted:
--   open    no upper end is known: half as much again before the first cut, which a bucket notices sooner
--           than a doubling; then by steps that grow by half, or do not grow while reports take longer
--           than a window
--   search  half of what is missing to the upper end
--   probe   at the upper end after 6, 12, then 20 quiet windows (a small limit: 6, then 20): 2 % more;
--           two accepted windows of that open the limit again, six of a small limit.
--           A refused probe falls back to where it began. If a bucket let a probe pass, the next one takes
--           longer.
-- Permits are spread evenly in events, while open and in probes, so that refusals come one by one.

local SLICES, KEEP, MOSTKEPT, MEMORY = 8, 80, 176, 20
local SLOWEST = 6 -- windows: a report that is later counts as if it were this late
local OPEN, SEARCH, PROBE = 1, 2, 3
local FULL, BELOW, DOUBT = 0.9, 0.95, 0.7
local WAITS = { 6, 12, 20 }
local PASS, LONGEST = 2, 16 -- windows for which a probe has to last
-- Below SMALL a step of one is 5 % or more: a bucket pays for a probe for several windows, and each
-- refusal counts.
local SMALL, SMALLPASS = 20, 6
local LATEST, MOST = 4503599627370496, 4294967295

-- The fields of a state, in the order of its text. Times are in us.
local NAMES = {
  'start', 'min', 'max', 'interval', 'even', -- as configured; even: smooth
  'limit', 'at',                             -- in force, and since when
  'phase', 'lo', 'lo_at', 'hi', 'step', 'passed', 'full', 'judged', 'quiet', 'probes',
  'event', 'till', 'was', 'doubtful', 'cut_at', 'refused_at', 'waves',
  'lag', 'lag_at', 'seen',                   -- how late reports are; up to where the log was read
  'told', 'told_at',                         -- what the API says its limit is, and when it did
  'others', 'cuts', 'accepted', 'refused',   -- when somebody else was seen to use the quota; how many there were since the start
  'base', 'need',                            -- the level before the last probe that passed; for how many windows the next one has to last
  'bore',                                    -- lo as it was last known, even if it was refused since
  'cost', 'cost_at',                         -- the most permits that one request took lately, or wants, and when
}

-- fresh is the state of a limit about which nothing is known.
local function fresh(c, limit, now)
  local s = { slices = {} }
  for _, name in ipairs(NAMES) do s[name] = 0 end
  s.start, s.min, s.max, s.interval, s.even = c.start, c.min, c.max, c.interval, c.even
  s.limit, s.at, s.phase, s.seen = max(min(limit, c.max), c.min), now, OPEN, now
  return s
end

-- read reads the text of a state; nil if it makes no sense.
local function read(text)
  local s, n, i = { slices = {} }, #NAMES, 0
  for word in string.gmatch(text, '%S+') do
    i = i + 1
    if i <= n then
      local x = tonumber(word)
      if not x or x ~= floor(x) or x < 0 or x > LATEST then return nil end
      s[NAMES[i]] = x
    else
      local k, granted, ok, no = match(word, '^(%d+):(%d+):(%d+):(%d+)$')
      if not k or i > n + 2 * MOSTKEPT then return nil end
      s.slices[#s.slices + 1] = { k + 0, min(granted + 0, MOST), min(ok + 0, MOST), min(no + 0, MOST) }
    end
  end
  local sane = i >= n and s.min >= 1 and s.min <= s.max and s.max <= MOST and s.interval >= 1 and s.limit >= 1 and s.phase >= OPEN and s.phase <= PROBE
  return sane and s or nil
end

-- text is a state as it is stored.
local function text(s)
  local out = {}
  for i, name in ipairs(NAMES) do out[i] = format('%.0f', s[name]) end
  for _, x in ipairs(s.slices) do out[#out + 1] = format('%.0f:%.0f:%.0f:%.0f', x[1], x[2], x[3], x[4]) end
  return table.concat(out, ' ')
end

local GRANTED, OK, NO = 2, 3, 4 -- their indexes in a slice; index 1 is its number

local function slice_of(W, t) return floor(t / (W / SLICES)) end

-- note adds n of a kind at t to its slice. The slices are in order.
local function note(s, W, t, kind, n)
  local k, all = slice_of(W, t), s.slices
  local i = #all
  while i > 0 and all[i][1] > k do i = i - 1 end
  if i == 0 or all[i][1] < k then
    i = i + 1
    table.insert(all, i, { k, 0, 0, 0 })
  end
  all[i][kind] = all[i][kind] + n
end

-- forget drops the slices that are too old, and those in the future.
local function forget(s, W, now)
  local k, kept = slice_of(W, now), {}
  local keep = KEEP
  if s.event > 0 then keep = max(keep, min(k - slice_of(W, s.refused_at) + SLICES + 1, MOSTKEPT)) end -- what the event began with
  if s.lag > 2 * W then keep = max(keep, SLICES * (ceil(3 * s.lag / W) + 4)) end
  if s.judged > k then s.judged, s.full = 0, 0 end -- from slices of another length, or by another clock
  for _, x in ipairs(s.slices) do
    if x[1] > k - keep and x[1] <= k + 1 then kept[#kept + 1] = x end
  end
  s.slices = kept
end

-- sum is how many of a kind there are in the slices from first to last.
local function sum(s, kind, first, last)
  local n = 0
  for _, x in ipairs(s.slices) do
    if x[1] >= first and x[1] <= last then n = n + x[kind] end
  end
  return n
end

-- bound is what the API accepted at most in the window that ends with t. The slice of t counts
-- fully: all of it may have been granted at one time.
local function bound(s, W, t)
  local k, n = slice_of(W, t), 0
  local rest = 1 - (t - k * W / SLICES) / (W / SLICES) -- the part in the window of the slice with which it begins
  for _, x in ipairs(s.slices) do
    if x[1] >= k - SLICES and x[1] <= k then n = n + max(x[GRANTED] - x[NO], 0) * (x[1] == k - SLICES and rest or 1) end
  end
  return floor(n + 0.001)
end

-- known is lo while it is remembered, then 0.
local function known(s, e) return e.now - s.lo_at <= MEMORY * e.W and s.lo or 0 end

-- bore is what the API accepted lately: an upper end far below it says that somebody else uses the API,
-- or that the API accepts less.
local function bore(s, e) return e.now - s.lo_at <= MEMORY * e.W and s.bore or 0 end

-- most is the highest useful limit: the configured one, or what the API says its own limit is.
local function most(s, e)
  if s.told > 0 and e.now - s.told_at <= MEMORY * e.W then return max(min(s.told, s.max), s.min) end
  return s.max
end

-- least is the lowest useful limit: the configured one, or what one request costs, as long as there
-- are such requests: below it they would never get permits.
local function least(s, e)
  return e.now - s.cost_at <= MEMORY * e.W and max(min(s.cost, most(s, e)), s.min) or s.min
end

local function set(s, e, limit)
  limit = max(min(floor(limit + 0.001), most(s, e)), least(s, e))
  if limit ~= s.limit then s.limit, s.at = limit, e.now end
end

-- below is the limit that follows from an upper end u: a little below u, but not below what is
-- known to be accepted, unless u is far below that.
local function below(s, e, u)
  local lo = known(s, e)
  if u < FULL * lo then return BELOW * u end
  if lo > u then return lo end -- the two are as close as reports can show
  return min(u, max(BELOW * u, lo))
end

-- spoilt records that a level was refused that was known to be accepted, or should have been: an
-- API with a bucket accepts more than it leaks until the bucket is full. Then the level before the
-- last probe is right, and the next probe has to last longer.
local function spoilt(s, e, u)
  if s.limit <= known(s, e) then s.lo = 0 end
  if s.base < s.limit and s.base > 0.6 * s.limit then
    u = min(u, s.base)
    s.lo = min(s.lo, s.base)
    s.bore = min(s.bore, s.base)
    s.need = min(4 * max(s.need, PASS), LONGEST)
    s.probes = #WAITS
  end
  s.base = 0
  return u
end

-- begin begins an event with the refusal of a permit granted at t.
local function begin(s, e, t)
  local u = max(min(bound(s, e.W, t), s.limit - 1), 1)
  s.doubtful = (u < FULL * known(s, e) or u < 0.4 * s.limit) and 1 or 0
  local to
  if s.phase == OPEN and s.cuts == 0 and s.step > 0 and s.limit < 2 * SMALL then to = DOUBT * s.limit end -- about where the last step began
  if s.phase == PROBE then
    s.probes = s.was < SMALL and #WAITS or min(s.probes + 1, #WAITS)
    if s.doubtful == 0 then
      u, to = min(max(u, s.was), s.limit - 1), s.was
      s.lo = min(s.lo, s.was)
    end
  elseif s.phase == OPEN or s.doubtful == 1 then
    s.probes = 1
  elseif s.limit >= s.hi and s.limit < SMALL then
    s.probes = #WAITS -- its step to the upper end was as good as a probe
  end
  if s.phase ~= PROBE and s.doubtful == 0 and s.limit <= known(s, e) then u = spoilt(s, e, u) end
  s.was, s.event, s.till, s.cut_at, s.refused_at, s.waves = s.limit, e.now, e.now + e.W + 2 * s.lag, e.now, t, 0
  s.hi, s.cuts = max(u, 1), s.cuts + 1
  set(s, e, to or (s.doubtful == 1 and DOUBT * s.limit or below(s, e, s.hi)))
  s.hi = max(s.hi, min(s.limit, s.was - 1))
end

-- wave handles the refusal of a permit granted at t, after the cut of its event. It returns for how
-- long nobody is to ask.
local function wave(s, e, t)
  s.refused_at = max(s.refused_at, t)
  local pause = min(floor(e.W / 4), e.longest)
  s.waves, s.cut_at = s.waves + 1, e.now + pause
  local u = max(min(bound(s, e.W, t), s.limit - 1), 1)
  if u < FULL * bore(s, e) then s.till = max(s.till, e.now + e.W + 2 * s.lag) end -- what somebody else takes is fully seen only a window later
  if s.base > 0 or s.limit <= known(s, e) then u = spoilt(s, e, u) end
  set(s, e, max(min(s.limit, below(s, e, u)), DOUBT * s.limit))
  return pause
end

-- finish ends an event: everything that was refused in it is known.
local function finish(s, e)
  local u, lo = max(bound(s, e.W, s.refused_at), 1), known(s, e)
  -- Somebody else uses the API, or it accepts less: what a bucket taught belongs to another level.
  if u < FULL * bore(s, e) then s.others, s.need, s.probes = e.now, 0, 1 end
  if u < lo and u >= FULL * lo then u = lo end
  if s.waves > 0 then
    if lo > u then s.lo = 0 end
    s.hi = min(u, s.was)
    set(s, e, min(s.limit, below(s, e, s.hi)))
  elseif s.doubtful == 1 then
    s.hi = s.was
  else
    s.hi = max(min(s.hi, u), 1)
    set(s, e, min(s.limit, s.hi))
  end
  if s.at == e.now then s.cut_at = e.now end -- the limit was lowered: permits granted before say nothing more
  s.event, s.phase, s.full, s.quiet, s.at = 0, SEARCH, 0, e.now, e.now
end

-- full is how many permits a window must use to count as used: what is left may be less than one
-- request costs.
local function full(s, e)
  if e.now - s.cost_at > MEMORY * e.W then return FULL * s.limit end
  return min(FULL * s.limit, max(s.limit - s.cost + 1, s.limit / 2))
end

-- grow raises the limit if a whole window was used and accepted since the limit last changed, and
-- since the last window that was judged.
local function grow(s, e)
  local last = slice_of(e.W, e.now - s.lag) - 1 -- the last slice of which everything is known
  local first = last - SLICES + 1
  if first * e.W / SLICES < s.at or first <= s.judged then return end
  local n = sum(s, OK, first, last)
  if n < full(s, e) or sum(s, NO, first, last) > 0 then return end
  local lo = min(s.full, n)
  if lo > 0 and lo >= known(s, e) then s.lo, s.bore, s.lo_at = lo, lo, e.now end
  s.full, s.judged = n, last
  if s.phase == PROBE then
    s.passed = s.passed + 1
    if s.passed < max(s.need, s.was < SMALL and SMALLPASS or PASS) then return end
    s.phase, s.hi, s.probes, s.step, s.base = OPEN, 0, 1, s.limit - s.was, s.was
  end
  if s.phase == OPEN then
    s.step = s.cuts == 0 and ceil(s.limit / 2) or max(1, min(s.lag > e.W and s.step or floor(1.5 * s.step + 0.5), floor(s.limit / 4)))
    set(s, e, s.limit + s.step)
  elseif s.limit < min(s.hi, most(s, e)) then
    set(s, e, s.limit + max(1, floor((s.hi - s.limit) / 2)))
    s.quiet = e.now
  elseif e.now - s.quiet >= WAITS[max(s.probes, 1)] * e.W and s.limit < most(s, e) then
    s.phase, s.passed, s.was = PROBE, 0, s.limit
    set(s, e, s.hi + max(1, floor(0.02 * s.hi)))
  end
end

-- heed takes over what the API says its limit is. What the API refuses says more: for some time
-- after that, only growth raises the limit.
local function heed(s, e)
  local new = e.told ~= s.told and s.event == 0 and (s.cuts == 0 or e.now - s.cut_at > MEMORY * e.W)
  s.told, s.told_at = e.told, e.now
  if s.limit > most(s, e) or new then
    set(s, e, e.told)
    s.phase, s.hi, s.full, s.quiet, s.probes = SEARCH, most(s, e), 0, e.now, 1
  end
end

-- back handles a clock that was set back: what was recent stays recent. The times of the slices are
-- no longer known.
local TIMES = { 'at', 'lo_at', 'quiet', 'event', 'till', 'cut_at', 'refused_at', 'lag_at', 'told_at', 'others', 'cost_at', 'seen' }
local function back(s, by)
  for _, name in ipairs(TIMES) do
    if s[name] > 0 then s[name] = max(s[name] - by, 1) end
  end
  s.slices, s.judged, s.full = {}, 0, 0
end

-- unread is the time from which on the log has to be read: the slice in which the last reading
-- ended is read again, since grants of one bucket become one entry.
local function unread(s, W, now)
  if s.seen > now then back(s, s.seen - now) end
  return max(slice_of(W, s.seen) * W / SLICES, now - W)
end

-- learn takes what is new, e: now, W (us), granted: {{t, n}...} of the log since unread, reports:
-- {{t, accepted, refused}...}, by when their permits were granted, told: permits of the limit's
-- interval that the API says it accepts (0: nothing), cost: the most permits that one request took or
-- wants (0: none), longest: the longest pause (us). It changes the state, and returns for how long
-- from now nobody is to ask (0: go on). The limit is then s.limit.
local GRACE = 100000 -- us after a cut in which permits are still used that were granted before
local function learn(s, e)
  local pause, late, grace = 0, 0, min(GRACE, e.W / 4)
  local read = slice_of(e.W, s.seen)
  for _, x in ipairs(s.slices) do
    if x[1] >= read then x[GRANTED] = 0 end
  end
  for _, g in ipairs(e.granted) do
    if slice_of(e.W, g[1]) >= read then note(s, e.W, g[1], GRANTED, g[2]) end
  end
  s.seen = e.now
  if e.cost > 0 and (e.cost >= s.cost or e.now - s.cost_at > MEMORY * e.W) then s.cost, s.cost_at = min(e.cost, s.max), e.now end
  for _, r in ipairs(e.reports) do
    r[1] = max(r[1], e.now - SLOWEST * e.W)
    note(s, e.W, r[1], OK, r[2])
    note(s, e.W, r[1], NO, r[3])
    s.accepted, s.refused, late = min(s.accepted + r[2], LATEST), min(s.refused + r[3], LATEST), max(late, e.now - r[1])
  end
  forget(s, e.W, e.now)
  if late > s.lag then
    s.lag = min(late, SLOWEST * e.W)
  elseif late > 0 then
    s.lag = s.lag - floor((s.lag - late) * min(1, (e.now - s.lag_at) / (4 * e.W)))
  end
  if late > 0 then s.lag_at = e.now end
  if s.event > 0 and e.now >= s.till then finish(s, e) end
  for _, r in ipairs(e.reports) do
    local t = r[1]
    if r[3] > 0 then
      if s.event == 0 then
        if t > s.cut_at then begin(s, e, t) end
      elseif t > s.cut_at + grace then
        pause = wave(s, e, t)
      else
        s.refused_at = max(s.refused_at, t)
      end
    end
  end
  if e.told > 0 then heed(s, e) end
  if s.event == 0 then grow(s, e) end
  if s.limit < least(s, e) then set(s, e, s.limit) end
  return pause
end

-- evenly reports whether permits are to be spread evenly.
local function evenly(s)
  return s.even == 1 or s.event > 0 or (s.phase == OPEN or s.phase == PROBE) and s.limit < s.max
end

return { fresh = fresh, read = read, text = text, unread = unread, learn = learn, evenly = evenly, known = known }

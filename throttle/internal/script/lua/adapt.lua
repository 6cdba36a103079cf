-- Takes a client's report of what became of permits of an adaptive limiter, and returns the limit
-- that follows (learn.lua). What is learnt is one field of the limiter's hash, adapt; the limit in
-- force is its rate.
--
-- KEYS: the SPAN keys of the limiter (log.lua), 7 the reply to this client's last report
-- ARGV: 1 the report's number (grows within KEYS[7], all have one length), 2 start:min:max, in case what was learnt is lost,
--       3 numbers, separated by spaces: what the API says its limit is, in permits and the us for which (0 0: nothing); the most
--       permits that one request took or wants (0: none); the longest pause (us); for each time at which permits were to be used:
--       how long ago that was (us), permits accepted, refused
-- reply: one string: the limit, us for which a permit counts; or 0 0: it is not adaptive, or has no rate
--
-- A cut raises the epoch. A raise keeps the epoch, and all reservations. A pinned limiter stays as
-- it is.

local last = call('GET', KEYS[7])
if last and sub(last, 1, #ARGV[1]) >= ARGV[1] then return sub(last, #ARGV[1] + 2) end

local now = clock()
local m = open(1)
local stored = m and call('HGET', KEYS[1], 'adapt')
if not m or m.bad or m.per_client or stored == '0' then return '0 0' end

local s = stored and learn().read(stored)
if not s then
  local c = {}
  for n in string.gmatch(ARGV[2], '%d+') do c[#c + 1] = tonumber(n) end
  s = learn().fresh({ start = c[1], min = c[2], max = c[3], interval = m.interval, even = m.smooth and 1 or 0 }, m.rate, now)
elseif s.limit ~= m.rate or s.interval ~= m.interval then -- somebody else has set it: what was learnt no longer holds
  s.interval = m.interval
  s = learn().fresh(s, m.rate, now)
end

if not m.pinned then
  local e = { now = now, W = m.W, granted = {}, reports = {}, told = 0, cost = 0 }
  local raw = call('ZRANGEBYSCORE', m.permits_key, score(learn().unread(s, m.W, now)), score(now), 'WITHSCORES')
  for i = 1, #raw, 2 do e.granted[#e.granted + 1] = { time_of(raw[i + 1]), weight(raw[i]) } end
  local next_number, state = string.gmatch(ARGV[3], '%S+')
  local function take() return next_number(state) end
  local told, per = take() + 0, take() + 0
  if told > 0 and per > 0 then e.told = max(1, min(floor(told * (m.interval / per)), 4294967295)) end
  e.cost, e.longest = take() + 0, take() + 0
  local age = take()
  while age do
    e.reports[#e.reports + 1] = { max(now - age, 0), take() + 0, take() + 0 }
    age = take()
  end

  local pause = learn().learn(s, e)
  local even, lower = learn().evenly(s), s.limit < m.rate or pause > 0 or m.foreign
  if s.limit ~= m.rate or even ~= m.smooth or lower then
    m.rate, m.smooth = s.limit, even
    if pause > 0 then m.pause = max(m.pause, now + pause) end
    call('HSET', KEYS[1], 'rate', int(m.rate))
    if lower then
      config().change(m, now, 0)
    else
      config().write_seal(m)
      if call('EXISTS', m.value_key) == 1 then call('SET', m.value_key, int(config().sum_log(m)), 'KEEPTTL') end
      if call('ZCOUNT', m.permits_key, score(now + NEAR), '+inf') > 0 then config().announce_release(m.name) end
    end
  end
  call('HSET', KEYS[1], 'adapt', learn().text(s))
end

local reply = int(m.rate) .. ' ' .. int(m.W)
call('SET', KEYS[7], ARGV[1] .. ' ' .. reply, 'PX', int(KEPT))
return reply

-- Makes a limiter adaptive, or ends that.
--
-- KEYS: the SPAN keys of the limiter (log.lua), 7 and ARGV: 1, 2 see once in config.lua
-- ARGV: 3 start (0: the rate that it has), 4 min, 5 max (0 0 0: not adaptive, and its rate stays as it is now), 6 configuration
--       to create it with or ''
-- reply: 1, or -1 if the limiter is not initialized, or -2 if it is PER_CLIENT
--
-- What was learnt stays as long as start, min, max and the interval are the same.

return config().once(function(now, furthest)
  local m = open(1)
  if not m and ARGV[6] ~= '' and ARGV[5] ~= '0' then m = config().create_config(1, ARGV[6], now) end
  if not m then return -1 end
  if m.bad then return bad_field(m) end
  if m.per_client then return -2 end
  local start, low, high = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
  local stored = call('HGET', KEYS[1], 'adapt')
  local s = stored and stored ~= '0' and learn().read(stored)
  local rate, even = m.rate, m.smooth
  if high == 0 then
    if not stored or stored == '0' then return 1 end
    even = s and s.even == 1
    call('HSET', KEYS[1], 'adapt', '0') -- not deleted: a client that knows it as adaptive would write it again
  else
    if s and s.min == low and s.max == high and (start == 0 or s.start == start) and s.interval == m.interval then return 1 end
    local c = { start = start > 0 and start or s and s.start or m.rate, min = low, max = high, interval = m.interval, even = s and s.even or m.smooth and 1 or 0 }
    s = learn().fresh(c, s and start > 0 and start ~= s.start and start or m.rate, now)
    rate, even = m.pinned and m.rate or s.limit, m.pinned and m.smooth or learn().evenly(s)
    call('HSET', KEYS[1], 'adapt', learn().text(s))
  end
  if rate ~= m.rate or even ~= m.smooth then
    m.rate, m.smooth = rate, even
    call('HSET', KEYS[1], 'rate', int(rate))
    config().change(m, now, furthest)
  end
  return 1
end)

-- Reads a limiter: its configuration and how it stands. Writes nothing.
--
-- KEYS: the SPAN keys of the limiter (log.lua)
-- ARGV[1]: 0 if the clients seen lately are not wanted
-- reply: -1 if it is not initialized, else {integers separated by spaces, those clients...}:
--   rate, interval ms, type, keepAlive ms, guard us, smooth, window, offset us,
--   used, reserved, available, next free us, paused us, pinned, available 200 ms from now (SOON), us until more than that are
--   (0: never, now, or not known because the limiter is smooth)

local SOON = 200000
local now = clock()
local m = open(1)
if not m then return -1 end
if m.bad then return bad_field(m) end
call('GET', m.value_key) -- a key of another type is an error here as in acquire
windows().load_log(m, now)
m.value = 0 -- the cached value may be wrong: the log decides
local first_ahead = windows().above(m, now)
local used, all = m.p[first_ahead - 1], m.p[m.n]
local from = max(now, m.pause)
local free = windows().fit(m, 1, from, now)
local soon = windows().available(m, now + SOON)
local later = soon < m.rate and not m.smooth and windows().fit(m, soon + 1, from, now) or now
local figures = {
  m.rate, m.interval / 1000, m.per_client and 1 or 0, m.keep, m.guard, m.smooth and 1 or 0, m.calendar and 1 or 0, m.offset,
  used, all - used, windows().available(m, now), free - now, max(m.pause - now, 0), m.pinned and 1 or 0,
  soon, later - now,
}
for i, x in ipairs(figures) do figures[i] = format('%.0f', x) end
local reply = { table.concat(figures, ' ') }
if ARGV[1] ~= '0' then
  for _, id in ipairs(config().clients_of(1)) do reply[#reply + 1] = id end
end
return reply

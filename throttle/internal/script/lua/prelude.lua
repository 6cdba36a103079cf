-- Names that all scripts share: functions of Redis and of Lua, and bounds. The functions that
-- follow belong to a block within this one: Lua makes a function faster the fewer names of its own
-- block it uses.
local call, floor, ceil, max, min = redis.call, math.floor, math.ceil, math.max, math.min
local byte, char, format, match, sub = string.byte, string.char, string.format, string.match, string.sub

local SPAN = 6
local BUCKETS = 256        -- entries a log may hold before they fall into buckets
local PURGE = 256          -- expired entries that one call drops at most
local COMPACT = 512        -- past entries: of a log with more, a call merges so many; twice those of a log in buckets
local UNPACK = 32          -- entries from which on a log must not be packed (unpack_log)
local NEAR = 100000        -- us: reservations nearer than this survive a change of configuration
local FAR = 1000000        -- us: the upper bound of that, if Redis is far from some client
local LOWEST = 2^45        -- more permits than all entries of a log together have
local KEPT = 11000         -- ms for which a reply is kept at least: its batch cannot be repeated for as long
local SETTLED = 3600000000 -- us: a clock that was set back, and has run on this far past where it was, is not expected to be set forward
local PRESENCE = 60000     -- ms for which a client counts as seen
local LATEST = 4503599627370496 -- us: no time is later

-- clock returns Redis's time in us, as a number and as text.
local function clock()
  local t = call('TIME')
  return t[1] * 1000000 + t[2], t[1] .. sub('00000' .. t[2], -6)
end

-- whole reads a whole number; nil for anything else.
local function whole(s)
  local n = tonumber(s)
  if n and n == floor(n) then return n end
  return nil
end

-- instant reads a time, or a length of time, in us; nil for anything else.
local function instant(s)
  local n = whole(s)
  return n and n > 0 and n <= LATEST and n or nil
end

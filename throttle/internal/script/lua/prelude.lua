-- What all scripts name in one way: functions of Redis and of Lua, and the
-- bounds. The functions that follow are of a block within this one: Lua makes a
-- function sooner the fewer names of its own block it uses.
local call, floor, ceil, max, min = redis.call, math.floor, math.ceil, math.max, math.min
local byte, char, format, match, sub = string.byte, string.char, string.format, string.match, string.sub

local SPAN = 6
local BUCKETS = 256        -- entries a log may hold before they fall into buckets
local PURGE = 256          -- expired entries one call drops at most
local COMPACT = 512        -- old entries, twice those of a log in buckets, that a call merges
local UNPACK = 32          -- entries from where a log is not to be packed
local NEAR = 100000        -- us: places nearer than this survive a change of configuration
local FAR = 1000000        -- us: and nearer than this at most, where Redis is far from some client
local LOWEST = 2^45        -- permits that all entries of a log together have not
local KEPT = 11000         -- ms for which a reply is kept at least: longer than its batch may be repeated
local SETTLED = 3600000000 -- us after which a clock that was set back is not expected to be set forward to where it was
local PRESENCE = 60000     -- ms for which a client counts as seen

-- clock returns Redis's time, and the same as text.
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

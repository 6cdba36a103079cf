-- What all scripts name in one way: functions of Redis and of Lua, and the
-- bounds. The functions that follow are of a block within this one: Lua makes a
-- function sooner the fewer names of its own block it uses.
local call, floor, ceil, max, min = redis.call, math.floor, math.ceil, math.max, math.min
local byte, char, format, match, sub = string.byte, string.char, string.format, string.match, string.sub

local SPAN = 6
local BUCKETS = 256    -- entries a log may hold before they fall into buckets
local PURGE = 256      -- expired entries one call drops at most
local COMPACT = 512    -- old entries, twice those of a log in buckets, that a call merges
local UNPACK = 32      -- entries from where a log is not to be packed
local NEAR = 100000    -- places nearer than this survive a change of configuration
local PRESENCE = 60000 -- ms for which a client counts as seen

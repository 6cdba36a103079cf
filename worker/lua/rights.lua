-- Finds what the user that runs it may not do. Redis 7 and later can say so; older ones find all allowed.
--
-- Commands are asked about as they are run, arguments and all: Redis 7.0 looks for the keys of a command without
-- checking that there are any, and crashes.
--
-- ARGV    number of commands, the commands, number of channels, the channels, keys of which each has to be readable and writable
-- Reply: {what is missing, as in ARGV, ...}
local arg = 0
local function take()
  arg = arg + 1
  return ARGV[arg]
end
local function list(n)
  local all = {}
  for i = 1, n do all[i] = take() end
  return all
end
local commands = list(tonumber(take()))
local channels = list(tonumber(take()))
local keys = list(#ARGV - arg)

local whole = {} -- of those that are not COMMAND KEY and two arguments
for _, command in ipairs({ "ping", "time", "multi", "exec" }) do whole[command] = function() return { command } end end
for _, command in ipairs({ "get", "mget", "del", "exists", "zcard", "hgetall", "hlen", "hvals", "incr", "llen", "persist", "pttl", "smembers", "zpopmin" }) do
  whole[command] = function(key) return { command, key } end
end
for _, command in ipairs({ "eval", "evalsha" }) do whole[command] = function(key) return { command, "", "1", key } end end
whole["rpoplpush"] = function(key) return { "rpoplpush", key, key } end
whole["memory|usage"] = function(key) return { "memory", "usage", key } end
whole["subscribe"] = function(key, channel) return { "subscribe", channel or channels[1] } end
whole["publish"] = function() return { "publish", channels[#channels], "" } end
whole["wait"] = function() return { "wait", "1", "1" } end

local function may(command, key, channel)
  if not redis.acl_check_cmd then return true end
  return redis.acl_check_cmd(unpack(whole[command] and whole[command](key, channel) or { command, key, "0", "0" }))
end

-- A command is missing if no key may be used with it. A key is missing if get or set may be used with another key, but not
-- with this one. If neither may be used with any key, all keys are missing.
local missing, usable = {}, {}
for _, command in ipairs(commands) do
  for _, key in ipairs(keys) do usable[command] = usable[command] or may(command, key) end
  if not usable[command] then missing[#missing + 1] = command end
end
for _, channel in ipairs(channels) do -- without the first, which of the two is missing cannot be told
  if not may("subscribe", nil, channel) then missing[#missing + 1] = channel end
end
for _, key in ipairs(keys) do
  local any = usable["get"] or usable["set"]
  if not any or usable["get"] and not may("get", key) or usable["set"] and not may("set", key) then missing[#missing + 1] = key end
end
return missing

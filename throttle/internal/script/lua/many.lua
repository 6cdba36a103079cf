-- Grants many requests at once, each for one limiter, as fast.lua does for one: if the cached value
-- covers the request, the configuration is the one that the client knows, and nothing needs upkeep.
-- It says which requests it has not granted, and leaves their limiters as they were.
--
-- KEYS: 1 the last reply to such a call, then for each: value, name, log
-- ARGV: 1 a number, higher than that of any call before for this key (all have one length), 2 us that Redis's clock must
--       show at least, 3 us after which it must not be served (0: any time), since its reply may be forgotten, 4 ms for
--       which that is kept, 5 us from which on all that expire get their lifetime again, 6 for each its kind, as a character from
--       @ on; then for each: seal last seen; then of each kind, of which there are few (to read an argument costs as much as
--       to use it): permits, rate, 1 to check what need not be checked in each call, 2 to check all of it (0), ms after which
--       the limiter is to expire, counted from its latest use (0: as it is), 1 to renew its lifetime (0)
-- reply: us as Redis's clock shows, us of the grants, and for each a character: + granted, 0 acquire.lua has to be asked, 1 the
--       same because there was no room

local call, pcall, sub, byte, char, tonumber, type = redis.call, redis.pcall, string.sub, string.byte, string.char, tonumber, type
local FULL = 512 -- entries above which acquire.lua has some to drop or to merge: COMPACT there
local LONG = string.rep('-', 65)
local no = ARGV[1] .. ' '
local n = (#KEYS - 1) / 3

local t = call('TIME')
local s, us = t[1], sub('00000' .. t[2], -6)
local at = s .. us
local last = call('GET', KEYS[1])
if last and sub(last, 1, #no) == no then return at .. sub(last, #no) end
if last and last > no or at < ARGV[2] or ARGV[3] ~= '0' and at > ARGV[3] then return at .. ' ' .. at .. ' ' .. string.rep('0', n) end

-- The bytes of the time, the last one first, as in pack_entry.
local rest, stamp = s * 1000000 + t[2], ''
for _ = 1, 7 do
  local b = rest % 256
  stamp = char(b) .. stamp
  rest = (rest - b) / 256
end
stamp = char(8, 0) .. stamp
local score = s .. sub(us, 1, 3) .. '.' .. sub(us, 4)

-- entry makes the entry of a grant of so many permits, now.
local entries = {}
local function entry(permits)
  local p = permits % 256
  local q = (permits - p) / 256
  local r = q % 256
  q = (q - r) / 256
  local u = q % 256
  local e = stamp .. char(p, r, u, (q - u) / 256)
  entries[permits] = e
  return e
end

-- known reports whether a limiter is as the client knows it. If check is 1 it also checks what
-- Redisson's clients may have done to it, and others to its log; if check is 2, also what people may
-- have changed.
local function known(name, seal, check, log)
  if check == '0' then return pcall('HGET', name, 'seal') == seal end
  local h
  if check == '2' then
    h = pcall('HMGET', name, 'seal', 'rate', 'interval', 'type', 'keepAliveTime', 'guard', 'smooth', 'window', 'offset', 'epoch', 'pause')
  else
    h = pcall('HMGET', name, 'seal', 'rate', 'interval', 'type', 'keepAliveTime')
  end
  for j = 1, check == '2' and 11 or 5 do
    if not h[j] then return false end
  end
  local shown = table.concat(h, ':', 2)
  if h[1] ~= seal or sub(seal .. ':', 1, #shown + 1) ~= shown .. ':' then return false end
  local card = pcall('ZCARD', log)
  if type(card) ~= 'number' or card == 0 or card > FULL then return false end
  if check == '2' and card >= 32 and card <= 128 then -- see unpack_log
    call('ZADD', log, '0', LONG)
    call('ZREM', log, LONG)
  end
  return true
end

local keys, all, kinds = {}, at >= ARGV[5], ARGV[6]
for i = 1, n do keys[i] = KEYS[3 * i - 1] end
local values = call('MGET', unpack(keys))
local out = {}
for i = 1, n do
  local k, name, log, said = n + 5 * byte(kinds, i) - 313, KEYS[3 * i], KEYS[3 * i + 1], '0' -- @ is 64
  local value, permits, rate = tonumber(values[i] or nil), ARGV[k], ARGV[k + 1] + 0
  if value and value <= rate and known(name, ARGV[6 + i], ARGV[k + 2], log) then
    if value < permits + 0 then
      said = '1'
    elseif pcall('ZADD', log, 'NX', score, entries[permits] or entry(permits)) == 1 then -- otherwise another grant of this microsecond, or not a log
      if type(pcall('DECRBY', keys[i], permits)) == 'number' then
        said = '+'
        local ttl = ARGV[k + 3] -- a log that was empty, and so did not exist, has no expiry yet
        if ttl ~= '0' and (all or ARGV[k + 4] == '1' or value == rate) and call('PTTL', log) < ttl + 0 then
          if call('PTTL', name) >= 0 then call('PEXPIRE', name, ttl) end -- otherwise it is pinned
          call('PEXPIRE', keys[i], ttl)
          call('PEXPIRE', log, ttl)
        end
      else
        call('ZREM', log, entries[permits]) -- the value was not a whole number
      end
    end
  end
  out[i] = said
end

local reply = at .. ' ' .. table.concat(out)
call('SET', KEYS[1], no .. reply, 'PX', ARGV[4])
return at .. ' ' .. reply

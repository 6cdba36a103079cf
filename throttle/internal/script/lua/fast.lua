-- Grants one run of equal requests at once if nothing else has to be done: the cached value covers
-- it, the configuration is the one that the client knows, and the log needs no upkeep. It does not
-- read the log, and needs few commands and few arguments, which are what a script costs Redis most.
-- If it does not grant, it has written nothing, and acquire.lua has to be asked.
--
-- KEYS: 1 the queue's last reply, then the value of each member, then their names, then their logs
-- ARGV: batch number (all of a queue have one length), us that Redis's clock must show at least
--       M x: seal last seen, permits, rate
--       and, if one of these is not 0: 1 if half of each limit has to stay free; 1 to check everything that need not be checked in
--       each call (what others may have done to the configuration and to the log, and how long the reply is kept); ms for
--       which the reply is kept; us from which on limiters that expire get their lifetime again; M x: ms for which entries count,
--       if the keys are this client's own; ms after which the limiter is to expire, counted from its latest use (0: as it is);
--       and, if it may not be served at any time, us after which it must not be, since its reply may be forgotten
-- reply: us, if everything was granted; otherwise 0, or 1 if there was no room and a little later there will be none either

local call, sub = redis.call, string.sub
local FULL = 512 -- entries above which acquire.lua has some to drop or to merge: COMPACT there

local M = (#KEYS - 1) / 3
local values = call('MGET', unpack(KEYS, 1, M + 1))
local last, batch, half, check = values[1], ARGV[1], ARGV[3 + 3 * M], ARGV[4 + 3 * M]
if last and last >= batch then return 0 end -- as text: a reply begins with its batch's number

local packed = nil
for i = 1, M do
  local name, seal, value, rate = KEYS[1 + M + i], ARGV[3 * i], values[1 + i], ARGV[2 + 3 * i]
  if check == '1' then
    local h = call('HMGET', name, 'seal', 'rate', 'interval', 'type', 'keepAliveTime', 'guard', 'smooth', 'window', 'offset', 'epoch', 'pause')
    for j = 1, 11 do
      if not h[j] then return 0 end
    end
    if h[1] ~= seal or table.concat(h, ':', 2) ~= seal then return 0 end -- what others changed does not match the seal
    local card = call('ZCARD', KEYS[1 + 2 * M + i])
    if card == 0 or card > FULL then return 0 end
    if card >= 32 and card <= 128 then -- see unpack_log
      packed = packed or {}
      packed[i] = true
    end
  elseif call('HGET', name, 'seal') ~= seal then
    return 0
  end
  if not value or #value > 15 or value ~= '0' and not string.find(value, '^%-?[1-9]%d*$') then return 0 end
  if value - rate > 0 then return 0 end
  local left = value - ARGV[1 + 3 * i]
  if left < 0 or half == '1' and left < rate / 2 then return 1 end -- unless what expired makes room
end

local t = call('TIME')
local s, us = t[1], sub('00000' .. t[2], -6) -- string.format is slow, and so are floats
local at = s .. us
local latest = ARGV[7 + 5 * M]
if at < ARGV[2] or latest and at > latest then return 0 end

-- The bytes of the time, the last one first, as in pack_entry.
local rest = s * 1000000 + t[2] -- not us: leading zeros make a number octal in miniredis
local a = rest % 256
rest = (rest - a) / 256
local b = rest % 256
rest = (rest - b) / 256
local c = rest % 256
rest = (rest - c) / 256
local d = rest % 256
rest = (rest - d) / 256
local e = rest % 256
rest = (rest - e) / 256
local f = rest % 256
local score = s .. sub(us, 1, 3) .. '.' .. sub(us, 4)
for i = 1, M do
  local value, permits, n, ms = KEYS[1 + i], KEYS[1 + 2 * M + i], ARGV[1 + 3 * i], ARGV[5 + 3 * M + 2 * i]
  local x = n + 0
  while true do
    local p = x % 256
    local q = (x - p) / 256
    local r = q % 256
    q = (q - r) / 256
    local u = q % 256
    local entry = string.char(8, 0, (rest - f) / 256, f, e, d, c, b, a, p, r, u, (q - u) / 256)
    if call('ZADD', permits, 'NX', score, entry) == 1 then break end
    call('ZREM', permits, entry) -- another grant in the same microsecond
    x = 2 * x
  end
  call('DECRBY', value, n) -- this cannot fail, unlike ZADD
  if packed and packed[i] then
    local long = string.rep('-', 65)
    call('ZADD', permits, '0', long)
    call('ZREM', permits, long)
  end
  if ms and ms ~= '0' and call('PTTL', permits) < ms + 1 then
    local ttl = string.format('%.0f', ms * 1.25 + 1)
    call('PEXPIRE', permits, ttl)
    call('PEXPIRE', value, ttl)
  end
  local all = ARGV[6 + 3 * M + 2 * i]
  local fresh = values[1 + i] == ARGV[2 + 3 * i] -- the log may have been empty, and then it did not exist
  if all and all ~= '0' and (fresh or at >= ARGV[6 + 3 * M]) and call('PTTL', permits) < all + 0 then
    if call('PTTL', KEYS[1 + M + i]) >= 0 then call('PEXPIRE', KEYS[1 + M + i], all) end -- otherwise it is pinned
    call('PEXPIRE', value, all)
    call('PEXPIRE', permits, all)
  end
end

local reply = batch .. ' 3 ' .. at -- status 3: everything was granted
if check ~= '1' and last and #last == #reply then
  call('SETRANGE', KEYS[1], '0', reply)
else
  call('SET', KEYS[1], reply, 'PX', ARGV[5 + 3 * M] or '11000')
end
return at

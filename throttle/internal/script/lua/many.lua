-- Grants requests for one limiter each, for many at once, as fast.lua does for one:
-- where the cached value covers it, the configuration is the one the client knows,
-- and nothing needs looking after. The others are told so, and have nothing written.
--
-- KEYS: 1 the last reply to such a call, then for each: value, name, log
-- ARGV: 1 a number, higher than that of any call before for this key (all are of one length), 2 us that Redis's clock must
--       show at the least, 3 us after which it is not to be served (0: any time), since its reply may be forgotten; then for
--       each: seal last seen, permits, rate, ms after which the limiter is to expire (0: as it is)
-- reply: us, and for each a character: + granted, 0 asked of acquire.lua, 1 the same for want of room

local call, pcall, sub, find = redis.call, redis.pcall, string.sub, string.find
local no = ARGV[1] .. ' '
local n = (#KEYS - 1) / 3

local t = call('TIME')
local s, us = t[1], sub('00000' .. t[2], -6)
local at = s .. us
local last = call('GET', KEYS[1])
if last and sub(last, 1, #no) == no then return sub(last, #no + 1) end
if last and last > no or at < ARGV[2] or ARGV[3] ~= '0' and at > ARGV[3] then return at .. ' ' .. string.rep('0', n) end

-- The bytes of the time, the last first, as pack_entry has them.
local rest, stamp = s * 1000000 + t[2], ''
for _ = 1, 7 do
  local b = rest % 256
  stamp = string.char(b) .. stamp
  rest = (rest - b) / 256
end
stamp = string.char(8, 0) .. stamp
local score = s .. sub(us, 1, 3) .. '.' .. sub(us, 4)
local weights = {}
local function weight(x)
  local p = x % 256
  local q = (x - p) / 256
  local r = q % 256
  q = (q - r) / 256
  local u = q % 256
  return string.char(p, r, u, (q - u) / 256)
end

local keys = {}
for i = 1, n do keys[i] = KEYS[3 * i - 1] end
local values = call('MGET', unpack(keys))
local out = {}
for i = 1, n do
  local value, name, permits = values[i], KEYS[3 * i], KEYS[3 * i + 1]
  local seal, wanted, rate, ttl = ARGV[4 * i], ARGV[4 * i + 1], ARGV[4 * i + 2], ARGV[4 * i + 3]
  local said = '0'
  if value and #value <= 15 and (value == '0' or find(value, '^%-?[1-9]%d*$')) and value - rate <= 0 then
    local h = pcall('HMGET', name, 'seal', 'rate', 'interval', 'type', 'keepAliveTime') -- what a Redisson client may have changed
    if h[1] == seal and h[5] and sub(seal, 1, #h[2] + #h[3] + #h[4] + #h[5] + 4) == h[2] .. ':' .. h[3] .. ':' .. h[4] .. ':' .. h[5] .. ':' then
      said = '1'
      if value - wanted >= 0 then
        local w = weights[wanted]
        if not w then
          w = weight(wanted + 0)
          weights[wanted] = w
        end
        if pcall('ZADD', permits, 'NX', score, stamp .. w) == 1 then
          call('DECRBY', keys[i], wanted) -- which cannot fail, as ZADD can
          said = '+'
          if ttl ~= '0' then
            call('PEXPIRE', name, ttl)
            call('PEXPIRE', keys[i], ttl)
            call('PEXPIRE', permits, ttl)
          end
        else
          said = '0' -- another grant in the same microsecond, or no sorted set
        end
      end
    end
  end
  out[i] = said
end

local reply = at .. ' ' .. table.concat(out)
call('SET', KEYS[1], no .. reply, 'PX', '11000')
return reply

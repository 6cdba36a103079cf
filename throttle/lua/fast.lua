-- Grants one run of equal requests at once where that is all there is to do:
-- the cached value covers it, the configuration is the one the client knows, and
-- the log needs no looking after. It reads no log and takes few commands. Where
-- it has nothing to say it has written nothing, and acquire.lua is to be asked.
--
-- KEYS: 1 the queue's last reply, then the value of each member, then their names, then their logs
-- ARGV: batch number, count, stock (permits of each member beyond what is asked, if half of the limit stays free), us that
--       Redis's clock must show at the least, what follows the time in the reply that acquire.lua would make
--       M x: seal last seen, permits, ms for which entries count if the keys are this client's own, else 0
-- reply: as of acquire.lua; or 0, or 1 if it was for want of room, which will be the same a moment later

local call, floor, char = redis.call, math.floor, string.char
local FULL = 512 -- entries above which acquire.lua has some to drop or to merge: COMPACT there

local M = (#KEYS - 1) / 3
local values = call('MGET', unpack(KEYS, 1, M + 1))
local batch, count, stock = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if values[1] and tonumber(string.match(values[1], '^%d+')) >= tonumber(batch) then return 0 end

local left, taken, card = {}, {}, {}
for i = 1, M do
  local h = call('HMGET', KEYS[1 + M + i], 'seal', 'rate', 'interval', 'type', 'keepAliveTime', 'frontier')
  local seal = ARGV[3 + 3 * i]
  if h[1] ~= seal or h[6] or not (h[2] and h[3] and h[4]) then return 0 end
  -- What a Redisson client changed does not match the seal.
  local shown = h[2] .. ':' .. h[3] .. ':' .. h[4] .. ':' .. (h[5] or '0') .. ':'
  if string.sub(seal, 1, #shown) ~= shown then return 0 end
  local value, x = tonumber(values[i + 1]), ARGV[4 + 3 * i] * count + stock
  if not value then return 0 end
  if value < x or stock > 0 and value - x < h[2] / 2 then return 1 end -- unless what expired makes room
  left[i], taken[i], card[i] = value - x, x, call('ZCARD', KEYS[1 + 2 * M + i])
  if card[i] == 0 or card[i] > FULL then return 0 end
end

local t = call('TIME')
local us = string.format('%06d', t[2])
local at, score = t[1] .. us, t[1] .. string.sub(us, 1, 3) .. '.' .. string.sub(us, 4) -- floats are slow to print
local now = t[1] * 1000000 + t[2]
if now < tonumber(ARGV[4]) then return 0 end

local high, low = floor(now / 4294967296), now % 4294967296
local id = char(8, 0, floor(high / 65536), floor(high / 256) % 256, high % 256,
  floor(low / 16777216), floor(low / 65536) % 256, floor(low / 256) % 256, low % 256)
for i = 1, M do
  local value, permits, x = KEYS[1 + i], KEYS[1 + 2 * M + i], taken[i]
  local function entry() return id .. char(x % 256, floor(x / 256) % 256, floor(x / 65536) % 256, floor(x / 16777216)) end
  while call('ZADD', permits, 'NX', score, entry()) == 0 do -- another grant in the same microsecond
    call('ZREM', permits, entry())
    x = 2 * x
  end
  if card[i] == 31 then -- see unpack_log
    local long = string.rep('-', 65)
    call('ZADD', permits, '0', long)
    call('ZREM', permits, long)
  end
  call('SET', value, string.format('%d', left[i]), 'KEEPTTL')
  local ms = tonumber(ARGV[5 + 3 * i])
  if ms > 0 and call('PTTL', permits) < ms + 1 then
    local ttl = string.format('%.0f', ms * 1.25 + 1)
    call('PEXPIRE', permits, ttl)
    call('PEXPIRE', value, ttl)
  end
end

local body = '0 ' .. at .. ' ' .. ARGV[5]
call('SET', KEYS[1], batch .. ' ' .. body, 'PX', '10000')
return at .. ' ' .. body

-- The way of most calls: the cached value covers all that is asked, nothing is
-- given back and nothing was changed. It grants now, reading no log, in few
-- commands. Put before acquire.lua (whose header says what ARGV and the reply
-- are), which goes on where this has nothing to say; until then it writes nothing.

local function fast()
  local M, FULL, SPAN = tonumber(ARGV[3]), 640, 6 -- FULL: entries from where expired ones are dropped
  local call, floor = redis.call, math.floor
  local function span(m) return m.interval * 1000 + tonumber(string.match(m.seal, '^%d+:%d+:%d:%d+:(%d+)')) end -- us
  local arg = 4 + 5 * M + 1 + M + 1 -- number of runs
  local count, stock = tonumber(ARGV[arg + 5]), ARGV[arg] == '2' and tonumber(ARGV[arg + 5 + M + 5]) or 0

  local keys, members = { KEYS[1] }, {}
  for i = 1, M do
    local seal, k = ARGV[5 * i], 2 + (i - 1) * SPAN
    local h = call('HMGET', KEYS[k], 'seal', 'rate', 'interval', 'type', 'frontier', 'keepAliveTime')
    if h[1] ~= seal or not (h[2] and h[3] and h[4]) then return nil end
    local ours = h[2] .. ':' .. h[3] .. ':' .. h[4] .. ':'
    -- What a Redisson client changed does not match the seal, which is a plain limiter's.
    if string.sub(seal, 1, #ours) ~= ours or h[6] and h[6] ~= '0' then return nil end
    local own = h[4] == '1' and 2 or 0
    members[i] = {
      name = KEYS[k], value_key = KEYS[k + 1 + own], permits_key = KEYS[k + 2 + own], per_client = own > 0, seal = seal,
      epoch = ARGV[5 * i + 1], rate = tonumber(h[2]), interval = tonumber(h[3]), n = tonumber(ARGV[arg + 5 + i]), frontier = h[5],
    }
    keys[i + 1] = KEYS[k + 1 + own]
  end
  local values = call('MGET', unpack(keys))
  if values[1] and tonumber(string.match(values[1], '^%d+')) >= tonumber(ARGV[1]) then return nil end
  for i, m in ipairs(members) do
    m.value, m.card = tonumber(values[i + 1]), call('ZCARD', m.permits_key)
    if not m.value or m.value < m.n * count or m.card == 0 or m.card > FULL then return nil end
    if stock > 0 and m.value - m.n * count - stock < m.rate / 2 then return nil end
  end

  local t = call('TIME')
  local us = string.format('%06d', t[2])
  local at, score = t[1] .. us, t[1] .. string.sub(us, 1, 3) .. '.' .. string.sub(us, 4) -- floats are slow to print
  local now = tonumber(at)
  if now < tonumber(ARGV[#ARGV]) then return nil end
  local high, low = floor(now / 4294967296), now % 4294967296
  local id = string.char(8, 0, floor(high / 65536), floor(high / 256) % 256, high % 256,
    floor(low / 16777216), floor(low / 65536) % 256, floor(low / 256) % 256, low % 256)
  local epochs = ''
  for _, m in ipairs(members) do
    local x = m.n * count + stock
    m.value = m.value - x
    if m.card > 256 then -- into the entry of its bucket, as write does
      local W = span(m)
      local base = floor(now / W) * W
      local first = base + math.ceil(floor((now - base) * 256 / W) * W / 256)
      local held = call('ZREVRANGEBYSCORE', m.permits_key, score, string.format('%.3f', first / 1000), 'LIMIT', '0', '1')
      local e = held[1]
      if e and #e == 13 and string.byte(e, 1) == 8 then
        local a, b, c, d = string.byte(e, 10, 13)
        x = x + a + b * 256 + c * 65536 + d * 16777216
        call('ZREM', m.permits_key, e)
      end
    end
    while true do
      local e = id .. string.char(x % 256, floor(x / 256) % 256, floor(x / 65536) % 256, floor(x / 16777216) % 256)
      if call('ZADD', m.permits_key, 'NX', score, e) == 1 then break end
      call('ZREM', m.permits_key, e) -- another grant in the same microsecond
      x = 2 * x
    end
    if m.card == 31 then -- see unpack_log
      call('ZADD', m.permits_key, '0', string.rep('-', 65))
      call('ZREM', m.permits_key, string.rep('-', 65))
    end
    call('SET', m.value_key, string.format('%d', m.value), 'KEEPTTL')
    if m.frontier then call('HDEL', m.name, 'frontier') end
    if m.per_client then
      local ms = span(m) / 1000
      if call('PTTL', m.permits_key) < ms + 1 then
        local ttl = string.format('%.0f', ms * 1.25 + 1)
        call('PEXPIRE', m.permits_key, ttl)
        call('PEXPIRE', m.value_key, ttl)
      end
    end
    epochs = epochs .. ' ' .. m.epoch .. ' 0'
  end
  local body = '0 ' .. at .. ' ' .. string.sub(epochs, 2) .. ' 0 1 ' .. ARGV[arg + 5] .. ' 0 0'
  if stock > 0 then body = body .. ' 1 ' .. stock .. ' 0 0' end
  call('SET', KEYS[1], ARGV[1] .. ' ' .. body, 'PX', '10000')
  return at .. ' ' .. body
end

if ARGV[4] == '1' then
  local reply = fast()
  if reply then return reply end
end


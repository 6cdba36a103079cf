-- Tells a client for how many permits tenants of a limiter may ask now, and everybody who waits:
-- start-time fair queueing. It grants nothing. Each client deals what there is room for among all
-- who wait, and asks for its own part.
--
-- A tenant's finish tag grows by permits/weight, from the virtual time on. The virtual time is the
-- largest start tag that was served. Finish tags below it are not kept: such tenants begin at the
-- virtual time. Jobs of the same limit use these tags, too.
--
-- KEYS: the SPAN keys of the limiter (log.lua)
--   7 finish:  zset, tenant -> finish tag; "" -> the virtual time
--   8 weights: hash, tenant -> the weight that somebody has given it; without one it is 1
--   9 waiting: hash, client -> who waits there: "until no out held rest", then for each tenant "<tab>tenant<tab>jobs cost
--              since": us until when that holds, number of its call, permits it has dealt itself that are not in the log yet,
--              and those not handed out yet, least start tag of tenants it does not tell of ("-": there are none); requests,
--              permits that each costs, about, us since when the first waits
--  10 charged: number of this client's last call that charged somebody
-- ARGV: 1 client, 2 number of the call, 3 us that "soon" is away, 4 us for which what is told holds, 5 out, 6 held, 7 rest,
--   8 virtual time at least, 9 whether what is charged was granted while nobody else waited there: 1 or 0, 10 tenants to
--   charge; for each of these its name and permits (negative: given back); then for each tenant that waits: name, jobs,
--   cost, us for which the first has waited
-- reply: -1 if the limiter is not initialized, else {"rate room free ahead pace v": permits, those there is room for soon, us
--   until there is room for one, permits that are reserved for later than soon, half of what the limit gives until soon,
--   virtual time; number of clients; for each its id and what it told; for each tenant they told of, in that order and
--   once, "finish weight"}

local now, m = clock(), open(1)
if not m then return -1 end
if m.bad then return bad_field(m) end
if m.per_client then return redis.error_reply('PERCLIENT the limit is for each client') end
local finish_key, weights_key, waiting_key, charged_key = KEYS[SPAN + 1], KEYS[SPAN + 2], KEYS[SPAN + 3], KEYS[SPAN + 4]
local function tag(x) return format('%.17g', x) end
local function finite(s)
  local x = s and tonumber(s)
  return x and x >= 0 and x < 4503599627370496 and x or nil
end
local function weight_of(s)
  local x = finite(s)
  return x and x >= 0.001 and x <= 1000000 and x or 1
end

local id, no, soon = ARGV[1], ARGV[2], now + tonumber(ARGV[3])
local record = { int(now + tonumber(ARGV[4])), no, ARGV[5], ARGV[6], ARGV[7] }
local charges = tonumber(ARGV[10])
local told = {}
for i = 11 + 2 * charges, #ARGV, 4 do
  told[#told + 1] = '\t' .. ARGV[i] .. '\t' .. ARGV[i + 1] .. ' ' .. ARGV[i + 2] .. ' ' .. int(now - tonumber(ARGV[i + 3]))
end

-- Who waits, in other clients and in this one. A record that was not told again in time is over.
local records, names, seen, repeated = {}, {}, {}, false
local function note(client, text)
  records[#records + 1], records[#records + 2] = client, text
  for name in string.gmatch(text, '\t([^\t]+)\t%d+ %d+ %d+') do
    if not seen[name] then seen[name], names[#names + 1] = true, name end
  end
end
local all = call('HGETALL', waiting_key)
for i = 1, #all, 2 do
  local head = string.gsub(all[i + 1], '\t[^\t]+\t%d+ %d+ %d+', '')
  local till, last = match(head, '^(%d+) (%d+) %d+ %d+ %S+$') -- what is not such a record is dropped
  if all[i] == id then
    repeated = last == no
  elseif till and tonumber(till) > now and tonumber(till) < now + 5000000 then -- longer than any client's record holds
    note(all[i], all[i + 1])
  else
    call('HDEL', waiting_key, all[i])
  end
end
local alone = #names == 0 and (#told == 0 or ARGV[9] == '1')
if #told > 0 or ARGV[5] ~= '0' then
  local text = table.concat(record, ' ') .. table.concat(told)
  call('HSET', waiting_key, id, text)
  call('PEXPIRE', waiting_key, 5000) -- longer than any client's record holds
  note(id, text)
elseif #all > 0 then
  call('HDEL', waiting_key, id)
end

-- Charge what tenants have got.
local known = call('ZSCORE', finish_key, '')
local v = finite(known)
if known and not v then call('DEL', finish_key) end
if charges > 0 and not repeated and call('GET', charged_key) ~= no then
  call('SET', charged_key, no, 'PX', 30000) -- longer than a call is repeated
  local before = v or 0
  local after = max(before, finite(ARGV[8]) or 0)
  for i = 11, 10 + 2 * charges, 2 do
    local weight = weight_of(call('HGET', weights_key, ARGV[i]))
    local f = max(finite(call('ZSCORE', finish_key, ARGV[i])) or 0, before) + ARGV[i + 1] / weight
    call('ZADD', finish_key, tag(f), ARGV[i])
    if alone then after = max(after, f) end -- what a tenant got while it was alone is not held against it
  end
  if not v or after > v then
    call('ZADD', finish_key, tag(after), '')
    call('ZREMRANGEBYSCORE', finish_key, '-inf', '(' .. tag(after))
  end
  v = after
  if call('ZCARD', finish_key) > 10000 then -- tenants that come only once: those that have got least begin again
    call('ZREMRANGEBYSCORE', finish_key, '-inf', '(' .. tag(v))
    call('ZREMRANGEBYRANK', finish_key, 1, call('ZCARD', finish_key) - 10001)
  end
  call('PEXPIRE', finish_key, 3600000)
end

local w = windows()
w.load_log(m, now)
local room = max(w.available(m, now), w.available(m, soon))
local free = w.fit(m, 1, max(now, m.pause), now)
if m.smooth then room = free > soon and 0 or min(room, floor((soon - free) * m.rate / m.W) + 1) end
local ahead = m.p[m.n] - m.p[w.above(m, soon) - 1]
local head = { m.rate, room, free - now, ahead, floor(m.rate * (soon - now) / m.W / 2) }
for i, x in ipairs(head) do head[i] = format('%.0f', x) end
local reply = { table.concat(head, ' ') .. ' ' .. tag(v or 0), int(#records / 2) }
for i = 1, #records do reply[#reply + 1] = records[i] end
for from = 1, #names, 1000 do
  local to = min(from + 999, #names)
  local tags = call('ZMSCORE', finish_key, unpack(names, from, to))
  local weights = call('HMGET', weights_key, unpack(names, from, to))
  for i = 1, to - from + 1 do reply[#reply + 1] = tag(finite(tags[i]) or 0) .. ' ' .. tag(weight_of(weights[i])) end
end
return reply

-- What changes a configuration, and what becomes of the log then.

-- The seal is the whole configuration in one string, written whenever one of
-- our scripts changes it: rate:interval ms:type:keepAlive ms:guard us:smooth:
-- window:offset us:epoch:pause. What a Redisson client changes does not match it.
local function write_seal(m)
  local keep = call('PTTL', m.name) > 0 and max(m.keep, 1) or m.keep -- not 0 for one that expires
  m.seal = format('%.0f:%.0f:%d:%.0f:%d:%d:%d:%.0f:%.0f:%.0f', m.rate, m.interval / 1000, m.per_client and 1 or 0, keep, m.guard,
    m.smooth and 1 or 0, m.calendar and 1 or 0, m.offset, m.epoch, m.pause)
  call('HSET', m.name, 'guard', m.guard, 'epoch', format('%.0f', m.epoch), 'pause', format('%.0f', m.pause), 'seal', m.seal)
end

-- The operations that change a configuration keep their last replies in the
-- limiter's own hash, so that a repeated script changes nothing twice.
local function replayed(name, token)
  local ops = call('HGET', name, 'ops')
  if not ops then return nil end
  for t, reply in string.gmatch(ops, '([^=,]+)=([^,]*)') do
    if t == token then return reply end
  end
  return nil
end

local function remember(name, token, reply)
  local ops, n = token .. '=' .. reply, 1
  for op in string.gmatch(call('HGET', name, 'ops') or '', '[^,]+') do
    if n == 8 then break end
    ops, n = ops .. ',' .. op, n + 1
  end
  call('HSET', name, 'ops', ops)
end

-- clients_of lists the clients seen lately, at most 1000 of them.
local function clients_of(k)
  return call('ZREVRANGE', KEYS[k + 5], 0, 999)
end

-- drop_places removes what was reserved beyond t.
local function drop_places(m, t)
  call('ZREMRANGEBYSCORE', m.permits_key, '(' .. score(t), '+inf')
end

-- sum_log is the cached value as the log has it: what every entry leaves of the rate.
local function sum_log(m)
  local used = 0
  for _, e in ipairs(call('ZRANGE', m.permits_key, 0, -1)) do used = used + weight(e) end
  return m.rate - used
end

-- write_config stores a whole configuration given as
-- {rate, interval ms, type, keepAlive ms, guard us, smooth, window, offset us}
-- and returns the limiter at k as it now is.
local function write_config(k, c, epoch)
  call('HSET', KEYS[k], 'rate', c[1], 'interval', c[2], 'type', c[3], 'keepAliveTime', c[4], 'guard', c[5],
    'smooth', c[6], 'window', c[7], 'offset', c[8], 'layout', '1')
  if tonumber(c[4]) > 0 then
    call('PEXPIRE', KEYS[k], c[4])
  else
    for i = k, k + 2 do call('PERSIST', KEYS[i]) end -- its log too, if it had one
  end
  local m = open(k)
  m.epoch = epoch
  write_seal(m)
  m.foreign = false
  return m
end

-- create_config is write_config for a limiter that is not there, from
-- "rate:interval:type:keepAlive:guard:smooth:window:offset".
local function create_config(k, packed, now)
  local c = {}
  for field in string.gmatch(packed, '[^:]+') do c[#c + 1] = field end
  return write_config(k, c, now)
end

-- announce tells the clients that listen that a configuration has changed. A
-- user who may not publish only makes them learn it a little later.
local function announce(name) redis.pcall('PUBLISH', 'jobthrottle:changes', name) end

-- announce_release tells them that places which lie ahead may be had sooner.
local function announce_release(name) redis.pcall('PUBLISH', 'jobthrottle:releases', name) end

-- change raises the epoch, to one that no client can have been seen in, drops the
-- places that are not near, and brings the cached value up to date: the log as it
-- stands decides.
local function change(m, now)
  m.epoch = max(m.epoch, now) + 1
  write_seal(m)
  announce(m.name)
  drop_places(m, m.epoch + NEAR)
  if call('EXISTS', m.value_key) == 1 then
    call('SET', m.value_key, format('%.0f', sum_log(m)), 'KEEPTTL')
  end
end

return {
  write_seal = write_seal, write_config = write_config, create_config = create_config, replayed = replayed, remember = remember,
  clients_of = clients_of, drop_places = drop_places, sum_log = sum_log, announce = announce, announce_release = announce_release,
  change = change,
}

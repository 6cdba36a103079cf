-- Changes of a configuration, and what they do to the log.

-- The seal is the whole configuration in one string, written whenever one of our scripts changes
-- it: rate:interval ms:type:keepAlive ms:guard us:smooth:window:offset us:epoch:pause. If others
-- change the configuration, it does not match the seal.
local function write_seal(m)
  local keep = call('PTTL', m.name) > 0 and max(m.keep, 1) or m.keep -- not 0 if it expires
  m.seal = fields().seal_of(m, keep)
  call('HSET', m.name, 'guard', format('%.0f', m.guard), 'smooth', m.smooth and '1' or '0', 'window', m.calendar and '1' or '0',
    'offset', format('%.0f', m.offset), 'epoch', format('%.0f', m.epoch), 'pause', format('%.0f', m.pause), 'seal', m.seal)
end

-- near is how far ahead reservations may lie that their owners still use after the configuration
-- has changed: they act on what they knew NEAR and a round trip ago. Clients far from Redis note
-- their own value in the limiter (acquire.lua).
local function near(m)
  return max(NEAR, min(whole(call('HGET', m.name, 'far')) or 0, FAR))
end

-- once makes a change and keeps its reply for longer than the change may be made: a repeated script
-- changes nothing twice, and a script that comes too late does not change what others have done
-- since. All scripts that change a limiter have the key of the reply in KEYS[SPAN + 1], in ARGV[1]
-- the us of Redis's clock up to which the change may be made, and in ARGV[2] what the clock would
-- show if it had not been set back, as far as the client knows (furthest). If the time is over they
-- reply what the clock shows.
local function once(change)
  local now, reply = clock(), call('GET', KEYS[SPAN + 1])
  if reply then return tonumber(reply) end
  if now > tonumber(ARGV[1]) then return now end
  reply = change(now, tonumber(ARGV[2]))
  if type(reply) == 'number' then -- otherwise it is an error, which has changed nothing
    call('SET', KEYS[SPAN + 1], reply, 'PX', int(min(ceil((ARGV[1] - now) / 1000) + 1000, 60000)))
  end
  return reply
end

-- clients_of lists the clients seen lately, at most 1000 of them.
local function clients_of(k)
  return call('ZREVRANGE', KEYS[k + 5], 0, 999)
end

-- logs_of lists the keys of the values and the logs of the client that calls and of the clients
-- seen lately.
local function logs_of(k)
  local keys = { KEYS[k + 3], KEYS[k + 4] }
  for _, id in ipairs(clients_of(k)) do
    keys[#keys + 1] = KEYS[k + 1] .. ':' .. id
    keys[#keys + 1] = KEYS[k + 2] .. ':' .. id
  end
  return keys
end

-- keep_clients keeps the set of clients seen for as long as it matters: a client that is not in it
-- may have to forget its log.
local function keep_clients(m)
  local ttl = m.keep > 0 and not m.per_client and min(m.keep, PRESENCE) or PRESENCE
  call('PEXPIRE', m.clients_key, ttl + ceil(3 * m.W / 1000))
end

-- drop_reservations removes what was reserved beyond t.
local function drop_reservations(m, t)
  call('ZREMRANGEBYSCORE', m.permits_key, '(' .. score(t), '+inf')
end

-- sum_log is the cached value according to the log: what its entries leave of the rate.
local function sum_log(m)
  local used = 0
  for _, e in ipairs(call('ZRANGE', m.permits_key, 0, -1)) do used = used + weight(e) end
  return m.rate - used
end

-- lives is for how many ms the keys of a limiter with keepAlive live on: its keepAlive, or longer
-- if need or a pause is longer.
local function lives(m, now, need)
  return max(need, m.keep, ceil((m.pause - now) / 1000))
end

-- write_config stores a whole configuration given as
-- {rate, interval ms, type, keepAlive ms, guard us, smooth, window, offset us}
-- and returns the limiter at k as it is then.
local function write_config(k, c, epoch)
  call('HSET', KEYS[k], 'rate', c[1], 'interval', c[2], 'type', c[3], 'keepAliveTime', c[4], 'guard', c[5],
    'smooth', c[6], 'window', c[7], 'offset', c[8], 'epoch', format('%.0f', epoch), 'layout', '1')
  local m = open(k)
  if m.bad then -- it is the pause: everything else is as written
    call('HDEL', KEYS[k], 'pause')
    m = open(k)
  end
  if m.keep > 0 and not m.pinned then
    call('PEXPIRE', KEYS[k], int(lives(m, clock(), 0)))
  elseif m.keep == 0 then
    for i = k, k + 2 do call('PERSIST', KEYS[i]) end -- the log too, if it expires
  end
  write_seal(m)
  m.foreign = false
  return m
end

-- create_config is write_config for a limiter that does not exist, from
-- "rate:interval:type:keepAlive:guard:smooth:window:offset".
local function create_config(k, packed, now)
  local c = {}
  for field in string.gmatch(packed, '[^:]+') do c[#c + 1] = field end
  return write_config(k, c, now)
end

-- announce tells the clients that listen that a configuration has changed. If the user may not
-- publish, they learn it a little later.
local function announce(name) redis.pcall('PUBLISH', 'jobthrottle:changes', name) end

-- announce_release tells them that reservations may get an earlier time.
local function announce_release(name) redis.pcall('PUBLISH', 'jobthrottle:releases', name) end

-- shown is the latest time that Redis's clock has shown, as far as this client (furthest) or one
-- before it knows. It is zero unless that is later than now by more than the clocks of masters
-- differ. The client that finds it out notes it in the limiter's hash, until the clock has run
-- there. A step back that was handled already (back) does not count. shown also returns what is
-- noted about that step (back), and about its end (forward).
local function shown(m, now, furthest)
  local h = call('HMGET', m.name, 'shown', 'back', 'forward')
  local noted, back, forward = instant(h[1]), instant(h[2]), instant(h[3])
  if back and furthest - now >= m.W then furthest = 0 end
  if noted and noted <= now then
    call('HDEL', m.name, 'shown')
    noted = nil
  end
  if furthest <= max(now + NEAR, noted or 0) then return noted or 0, back, forward end
  call('HSET', m.name, 'shown', int(furthest))
  return furthest, back, forward
end

-- change raises the epoch to a time at which no client can have been seen yet, drops the
-- reservations that are not near, and sets the cached value to what the log says. If Redis's clock
-- was set back, permits that were used before seem to lie ahead, as reservations do: so nothing is
-- dropped up to the latest time that the clock has shown. If that step was not handled yet, nobody
-- knows how far that is: then nothing is dropped, and the next batch handles it (mind_clock).
local function change(m, now, furthest)
  local shown, back = shown(m, now, furthest)
  local unseen = not back and (m.epoch > now + 1000 or shown - now >= m.W)
  m.epoch = max(m.epoch, now) + 1
  write_seal(m)
  announce(m.name)
  if not unseen then drop_reservations(m, max(now + 1, shown) + near(m)) end
  if call('EXISTS', m.value_key) == 1 then
    call('SET', m.value_key, format('%.0f', sum_log(m)), 'KEEPTTL')
  end
end

return {
  near = near, write_seal = write_seal, lives = lives, write_config = write_config, create_config = create_config, once = once,
  clients_of = clients_of, logs_of = logs_of, keep_clients = keep_clients, drop_reservations = drop_reservations, sum_log = sum_log, announce = announce, announce_release = announce_release,
  change = change, shown = shown,
}

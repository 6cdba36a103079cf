-- Sets the rate of a limiter.
--
-- KEYS: the SPAN keys of the limiter (log.lua), 7 and ARGV: 1, 2 see once in config.lua
-- ARGV: 3 mode: try (only if absent), set (overwrite, forget all usage), update (only if
--       present, keep usage), apply (create, or update unless pinned)
--       4.. rate, interval ms, type, keepAlive ms, guard us, smooth, window, offset us
--       12 with apply: 1 if the limiter is to be adaptive (adaptive.lua follows). If it is already, and started from this
--       rate, it keeps the rate that it has. Without the 1 the limiter is not adaptive any more.
-- reply: 1 the rate is set, 0 it was left as it was
-- A configuration that makes no sense is overwritten; with try it is an error. Where a rate is set, keys of another type are
-- removed: what is in them cannot be read.

return config().once(function(now, furthest)
  local mode, wanted = ARGV[3], {}
  for i = 4, 11 do wanted[#wanted + 1] = ARGV[i] end

  local old = open(1)
  if mode == 'try' and old and old.bad then return bad_field(old) end
  if mode == 'try' and old or mode == 'update' and not old or mode == 'apply' and old and old.pinned then return 0 end

  -- Before anything is written: Redis takes nothing back when a command that follows fails.
  local mended = false
  local function mend(read, key)
    local reply = redis.pcall(read, key)
    if type(reply) == 'table' and match(reply.err, 'WRONGTYPE') then
      call('DEL', key)
      mended = true
    end
  end
  mend('GET', KEYS[2])
  mend('ZCARD', KEYS[3])
  mend('ZCARD', KEYS[6])
  local own = config().logs_of(1)
  for i = 1, #own, 2 do
    mend('GET', own[i])
    mend('ZCARD', own[i + 1])
  end

  if not old then
    local reset = call('HGET', KEYS[1], 'epoch') -- it has no rate now, but may have had one
    config().write_config(1, wanted, max(now, min((instant(reset) or 0) + 1, LATEST)))
    return 1
  end

  local fields = call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime', 'guard', 'smooth', 'window', 'offset', 'adapt')
  local learnt = fields[9] and fields[9] ~= '0' and learn().read(fields[9])
  local even = learnt and (wanted[6] == fields[6] and learnt.even or tonumber(wanted[6]))
  if learnt and mode == 'apply' then
    if ARGV[12] ~= '1' then
      call('HSET', KEYS[1], 'adapt', '0')
    elseif not old.bad and fields[6] and learnt.start == tonumber(wanted[1]) and learnt.interval == wanted[2] * 1000 and learnt.even == tonumber(wanted[6]) then
      wanted[1], wanted[6] = fields[1], fields[6]
    end
  end
  local same = not old.foreign and not old.bad and not mended
  for i = 1, 8 do same = same and fields[i] == wanted[i] end

  if mode ~= 'set' and same then return 1 end

  local epoch = max(now, old.epoch + 1)
  local forget = mode == 'set' or (old.per_client and '1' or '0') ~= wanted[3]
  local m = config().write_config(1, wanted, epoch)
  if learnt and mode ~= 'apply' then -- what was learnt no longer holds
    learnt.even, learnt.interval = even, m.interval
    call('HSET', KEYS[1], 'adapt', learn().text(learn().fresh(learnt, m.rate, now)))
  end
  if forget then
    -- Clients whose keys are not known here see the reset when they next ask.
    call('HSET', KEYS[1], 'reset', format('%.0f', epoch))
    call('DEL', KEYS[2], KEYS[3])
    for _, key in ipairs(config().logs_of(1)) do call('DEL', key) end
    call('DEL', KEYS[6])
    config().announce(KEYS[1])
  else
    -- Entries that no longer count must not count again in a longer interval, and entries that
    -- count are kept for its length.
    local logs, ttl = config().logs_of(1), config().lives(m, now, ceil((m.W + FAR) / 1000))
    local before = score(cutoff(old.bad and m or old, now))
    call('ZREMRANGEBYSCORE', KEYS[3], '-inf', before)
    for i = 2, #logs, 2 do call('ZREMRANGEBYSCORE', logs[i], '-inf', before) end
    if m.keep > 0 then
      for i = m.pinned and 2 or 1, 3 do call('PEXPIRE', KEYS[i], ttl) end
    end
    for _, key in ipairs(logs) do call('PEXPIRE', key, ttl) end
    config().keep_clients(m)
    config().change(m, now, furthest)
  end
  return 1
end)

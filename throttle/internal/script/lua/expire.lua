-- Lets all keys of a limiter expire, or keeps them from expiring.
--
-- KEYS: the SPAN keys of the limiter (log.lua), 7 and ARGV: 1, 2 see once in config.lua
-- ARGV: 3 in how many ms (0: never, and no keepAlive any more)
-- reply: 1 done, 0 there is no such limiter, or none that expires

return config().once(function(now)
  if call('EXISTS', KEYS[1]) == 0 then return 0 end
  local ms = tonumber(ARGV[3])
  local m = open(1)
  if m and m.bad then return bad_field(m) end
  local logs, done, foreign = config().logs_of(1), 1, m and m.foreign
  if ms > 0 then
    for _, i in ipairs({ 1, 2, 3, 6 }) do call('PEXPIRE', KEYS[i], ms) end
    for _, key in ipairs(logs) do call('PEXPIRE', key, ms) end
  else
    if call('PTTL', KEYS[1]) < 0 then done = 0 end
    if done == 1 and call('HGET', KEYS[1], 'keepAliveTime') then call('HSET', KEYS[1], 'keepAliveTime', '0') end
    for i = 1, 3 do call('PERSIST', KEYS[i]) end
    m = open(1)
    if m then
      -- Each client's log goes on counting, with everything that may lie ahead in it.
      local ttl = ceil((bound(m, now) - now + m.W) / 1000)
      for _, key in ipairs(logs) do call('PEXPIRE', key, ttl) end
      config().keep_clients(m)
    end
  end
  if m and not foreign then config().write_seal(m) end
  return done
end)

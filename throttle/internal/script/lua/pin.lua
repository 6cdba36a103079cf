-- Pins a limiter, so that configuration files leave it alone, or unpins it. The hash of a pinned
-- limiter does not expire, but its value and its log do. The hash of an unpinned one expires like
-- others when it is not used.
--
-- KEYS: the SPAN keys of the limiter (log.lua), 7 and ARGV: 1, 2 see once in config.lua
-- ARGV: 3 pinned: 1 or 0
-- reply: 1, or -1 if the limiter is not initialized

return config().once(function(now)
  if call('HEXISTS', KEYS[1], 'rate') == 0 then return -1 end
  call('HSET', KEYS[1], 'pinned', ARGV[3])
  local m = open(1)
  if not m.bad and m.keep > 0 then
    if m.pinned then
      call('PERSIST', KEYS[1])
    elseif call('PTTL', KEYS[1]) < 0 then
      call('PEXPIRE', KEYS[1], int(config().lives(m, now, ceil(m.W / 1000))))
    end
  end
  return 1
end)

-- Pins a limiter, so that configuration files leave it alone, or unpins it.
--
-- KEYS: the SPAN keys of the limiter (log.lua), 7 and ARGV: 1, 2 see once in config.lua
-- ARGV: 3 pinned: 1 or 0
-- reply: 1, or -1 if the limiter is not initialized

return config().once(function()
  if call('HEXISTS', KEYS[1], 'rate') == 0 then return -1 end
  call('HSET', KEYS[1], 'pinned', ARGV[3])
  return 1
end)

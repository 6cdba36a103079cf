-- Deletes a limiter with all its keys, including those of known clients. (Keys of clients that
-- nobody has seen for a while expire anyway.)
--
-- KEYS: the SPAN keys of the limiter (log.lua), 7 and ARGV: 1, 2 see once in config.lua
-- reply: 1 deleted, 0 there was none

return config().once(function()
  local had = call('EXISTS', KEYS[1], KEYS[2], KEYS[3]) > 0
  for _, key in ipairs(config().logs_of(1)) do call('DEL', key) end
  local own = { unpack(KEYS, 1, SPAN) }
  for i, what in ipairs({ 'finish', 'weights', 'waiting' }) do own[SPAN + i] = sub(KEYS[2], 1, -6) .. what end -- tenants.lua
  call('DEL', unpack(own))
  config().announce(KEYS[1])
  return had and 1 or 0
end)

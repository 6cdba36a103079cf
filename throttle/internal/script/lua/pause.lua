-- Pauses a limiter, or ends its pause.
--
-- KEYS: the SPAN keys of the limiter (log.lua), 7 and ARGV: 1, 2 see once in config.lua
-- ARGV: 3 for how long from now in us (0: resume), 4 configuration to create it with or ''
-- reply: 1, or -1 if the limiter is not initialized

return config().once(function(now, furthest)
  local m = open(1)
  if not m and ARGV[4] ~= '' then m = config().create_config(1, ARGV[4], now) end
  if not m then return -1 end
  if m.bad then return bad_field(m) end

  local d = tonumber(ARGV[3])
  local till = d > 0 and now + d or 0
  if d > 0 and till <= m.pause or d == 0 and m.pause <= now then return 1 end -- a longer pause stands
  m.pause = till
  config().change(m, now, furthest)
  if m.keep > 0 then upkeep().expire(m, now) end
  return 1
end)

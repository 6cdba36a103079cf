-- Has called tasks in line again at the next look, at their places, unless they have come back by then.
--
-- KEYS[1] called: as in park.lua
-- ARGV    tasks
for _, task in ipairs(ARGV) do
  local was = redis.call("HGET", KEYS[1], task)
  if was then redis.call("HSET", KEYS[1], task, string.match(was, "^%S+") .. " 0") end
end
return 0

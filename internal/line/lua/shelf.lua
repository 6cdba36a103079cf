-- Reads tasks of a shelf, behind one of them. This is one step, so that nothing moves between the search for where to
-- go on and the read.
--
-- KEYS[1] the shelf: a zset, or a list whose last element comes first
-- ARGV[1] "up": a zset beginning with the lowest score; "down": with the highest; "list"
-- ARGV[2] tasks to read at most
-- ARGV[3] id behind which to go on, or "" to begin; ARGV[4] its score when it was read, in a zset
-- Reply: {id, score, ...}; the scores are 0 for a list
local key, most, id, score = KEYS[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

if ARGV[1] == "list" then
  local from, to = -most, -1
  local at = id ~= "" and redis.call("LPOS", key, id, "RANK", -1)
  if at == 0 then return {} end
  if at then from, to = math.max(at - most, 0), at - 1 end -- else it has been taken, and all before it, too
  local found, reply = redis.call("LRANGE", key, from, to), {}
  for i = #found, 1, -1 do
    reply[#reply + 1] = found[i]
    reply[#reply + 1] = "0"
  end
  return reply
end

-- If it is gone, or has moved, it was where its score is: those beside it may come again.
local there = id ~= "" and tonumber(redis.call("ZSCORE", key, id) or "nan") == tonumber(score)
if ARGV[1] == "up" then
  local from = 0
  if there then
    from = redis.call("ZRANK", key, id) + 1
  elseif id ~= "" then
    from = redis.call("ZCOUNT", key, "-inf", "(" .. score)
  end
  return redis.call("ZRANGE", key, from, from + most - 1, "WITHSCORES")
end
local behind -- how many are still to come
if there then
  behind = redis.call("ZRANK", key, id)
elseif id ~= "" then
  behind = redis.call("ZCOUNT", key, "-inf", score)
else
  behind = redis.call("ZCARD", key)
end
if behind == 0 then return {} end
local found, reply = redis.call("ZRANGE", key, math.max(behind - most, 0), behind - 1, "WITHSCORES"), {}
for i = #found - 1, 1, -2 do
  reply[#reply + 1] = found[i]
  reply[#reply + 1] = found[i + 1]
end
return reply

-- Notes what tenants of a limiter have got in a queue: start-time fair queueing. A charge adds permits/weight to a
-- tenant's finish tag, or to the virtual time if that is larger. The virtual time is the largest start tag that was
-- served. Tags below the virtual time are not kept: those tenants have got less, or nothing for long, and begin at the
-- virtual time. When the queue is empty, all begin again.
--
-- Each queue has tags of its own, because queues take turns by their weights: a tenant that has a queue for itself gets
-- much there. In other queues it is behind for that, but for no more than a bound, so that it is not behind for long when
-- it has no jobs in the first queue any more.
--
-- KEYS[1] finish: zset, tenant -> finish tag; "" -> the virtual time: those of programs, or of the queue if there is one
-- KEYS[2] weights: hash, tenant -> the weight that an operator has given it
-- KEYS[3] queues: hash, QUEUE -> ...: see share.lua
-- ARGV[1] queue, or "" for programs
-- ARGV[2] the virtual time is at least this; "" leaves it as it is, and does nothing where it is not known
-- ARGV[3] 1 if no task of the queue is in line any more
-- ARGV[4] what the keys with the tags of queues begin with
-- ARGV[5] the key of those of programs
-- ARGV    for each tenant: its name, permits (negative if it has given them back), its weight in the configuration, and
--         permits by which its tag in another queue is ahead of the virtual time there at most because of this
-- Reply: OK
local function text(x) return string.format("%.17g", x) end
if ARGV[3] == "1" then
  redis.call("DEL", KEYS[1])
end
local before = redis.call("ZSCORE", KEYS[1], "")
local v = tonumber(before or ARGV[2])
local others, own = {}, #ARGV > 5 and redis.call("EXISTS", KEYS[2]) == 1
if #ARGV > 5 then
  local keys = ARGV[1] ~= "" and { ARGV[5] } or {}
  for _, queue in ipairs(redis.call("HKEYS", KEYS[3])) do
    if queue ~= "" and queue ~= ARGV[1] and #keys < 10 then keys[#keys + 1] = ARGV[4] .. queue end
  end
  for _, key in ipairs(keys) do
    local at = tonumber(redis.pcall("ZSCORE", key, "") or nil)
    if at then others[#others + 1] = { key, at } end
  end
end
for i = 6, #ARGV, 4 do
  local tenant, permits, ahead = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 3])
  local weight = tonumber(own and redis.call("HGET", KEYS[2], tenant) or ARGV[i + 2]) or 1
  if v and ARGV[3] ~= "1" then
    local finish = math.max(tonumber(redis.call("ZSCORE", KEYS[1], tenant) or "0"), v)
    redis.call("ZADD", KEYS[1], text(finish + permits / weight), tenant)
  end
  for _, other in ipairs(permits > 0 and others or {}) do
    local finish = math.max(tonumber(redis.call("ZSCORE", other[1], tenant) or "0"), other[2])
    local most = math.max(finish, other[2] + ahead / weight)
    redis.call("ZADD", other[1], text(math.min(finish + permits / weight, most)), tenant)
  end
end
if not v or ARGV[3] == "1" then return redis.status_reply("OK") end
v = math.max(v, tonumber(ARGV[2]) or v)
if not before or v > tonumber(before) then
  redis.call("ZADD", KEYS[1], text(v), "")
  redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", "(" .. text(v))
end
if redis.call("ZCARD", KEYS[1]) > 10000 then -- many tenants that come once: those that have got least begin again
  redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", "(" .. text(v))
  redis.call("ZREMRANGEBYRANK", KEYS[1], 1, redis.call("ZCARD", KEYS[1]) - 10001)
end
redis.call("PEXPIRE", KEYS[1], 3600000)
return redis.status_reply("OK")

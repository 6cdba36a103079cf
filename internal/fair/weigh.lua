-- Gives a tenant of a limiter a weight. Its tags are as far ahead of the virtual times as if it had had that weight before.
--
-- KEYS[1] weights: hash, tenant -> weight
-- KEYS[2] finish: zset, tenant -> finish tag, "" -> the virtual time; of programs
-- KEYS[3] queues: hash, whose fields are the queues that have tags of their own
-- ARGV[1] tenant
-- ARGV[2] weight
-- ARGV[3] the weight that it had until now, if no operator has given it one
-- ARGV[4] what the keys with the tags of queues begin with
-- Reply: OK
local old = tonumber(redis.call("HGET", KEYS[1], ARGV[1]) or ARGV[3]) or 1
redis.call("HSET", KEYS[1], ARGV[1], ARGV[2])
local keys = { KEYS[2] }
for _, queue in ipairs(redis.call("HKEYS", KEYS[3])) do
  if queue ~= "" then keys[#keys + 1] = ARGV[4] .. queue end
end
for _, key in ipairs(keys) do
  local v, finish = redis.pcall("ZSCORE", key, ""), redis.pcall("ZSCORE", key, ARGV[1])
  if type(v) == "string" and type(finish) == "string" and tonumber(finish) > tonumber(v) then
    redis.call("ZADD", key, string.format("%.17g", v + (finish - v) * old / ARGV[2]), ARGV[1])
  end
end
return redis.status_reply("OK")

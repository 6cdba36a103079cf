-- Returns which tenants of a limiter have tasks of a queue in line: those that come first by what is known here.
--
-- KEYS[1] tenants: zset, tenant -> its start tag, as it was known when tasks of the tenant were last called. The tag grows
--         elsewhere as well, so this one is never above the present one.
-- ARGV[1] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV[2] limiter
-- ARGV[3] tenants to return at most
-- The tasks of a tenant are in the zset asynq:{QUEUE}:jt:line:LIMITER<tab>TENANT, as in any line. How many tasks all tenants
-- have in line is in the hash asynq:{QUEUE}:jt:tasks, LIMITER -> tasks.
-- Reply: number of tenants, then for each tenant returned: tenant, start tag, tasks, permits that the first task costs, its
-- first arrival
local reply = {redis.call("ZCARD", KEYS[1])}
local first = redis.call("ZRANGE", KEYS[1], 0, tonumber(ARGV[3]) - 1, "WITHSCORES")
for i = 1, #first, 2 do
  local line = ARGV[1] .. "jt:line:" .. ARGV[2] .. "\t" .. first[i]
  local tasks = redis.pcall("ZCARD", line)
  if type(tasks) == "number" then -- else somebody has written something there that is not a line
    local head = redis.call("ZRANGE", line, 0, 0)[1]
    local wait = head and redis.pcall("HGET", ARGV[1] .. "t:" .. head, "jt")
    if type(wait) ~= "string" then wait = "" end -- perhaps that is not a task
    local since, cost = string.match(wait, "^p (%d+) %d+ %d+ (%d+) ")
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = first[i], first[i + 1], tasks
    reply[n + 4], reply[n + 5] = tonumber(cost or "1"), since or "0"
  end
end
return reply

-- Removes the ids of tasks that are gone from the lines of tenants, and tenants without tasks: somebody may have deleted or
-- archived what thousands of them had in asynq's retry set. It begins with the tenants that come first, and with the tasks that
-- come first in the line of each.
--
-- KEYS[1] tenants, KEYS[2] tasks: as in tenants.lua
-- KEYS[3] asynq's retry set
-- KEYS[4] lines: as in due.lua
-- ARGV[1] what the keys of the queue begin with: asynq:{QUEUE}:
-- ARGV[2] limiter
-- ARGV[3] tenants to see at most
-- ARGV[4] tasks to see at most
-- Reply: 1 if most of what it has seen was gone, so that more may be; else 0
local seen, gone = 0, 0 -- seen counts what is read

-- there says whether the task of an id waits in the line of that name. What cannot be read may be there.
local function there(id, name)
  local known = redis.pcall("HMGET", ARGV[1] .. "t:" .. id, "state", "jt")
  if known.err then return string.sub(known.err, 1, 9) ~= "WRONGTYPE" end
  local score, line = string.match(known[2] or "", "^p %d+ %d+ (%d+) %d+ %d+ (.*)$")
  return known[1] == "retry" and line == name and tonumber(redis.call("ZSCORE", KEYS[3], id) or "0") == tonumber(score)
end

-- clear clears the line of a tenant as far as the first task that is there.
local function clear(tenant)
  local name, out, line = ARGV[2] .. "\t" .. tenant, {}, nil
  line = ARGV[1] .. "jt:line:" .. name
  for at = 0, 1 do -- the first task, and if that is gone, more
    local ids = redis.call("ZRANGE", line, at, at * 100)
    seen = seen + #ids
    for _, id in ipairs(ids) do
      if there(id, name) then break end
      out[#out + 1] = id
    end
    if #out == 0 then break end
  end
  if #out > 0 then
    redis.call("ZREM", line, unpack(out))
    redis.call("HINCRBY", KEYS[2], ARGV[2], -#out)
  end
  gone = gone + #out
  if redis.call("EXISTS", line) == 0 then
    redis.call("ZREM", KEYS[1], tenant)
    seen, gone = seen + 1, gone + 1
  end
end

for _, tenant in ipairs(redis.call("ZRANGE", KEYS[1], 0, tonumber(ARGV[3]) - 1)) do
  if seen >= tonumber(ARGV[4]) then break end
  pcall(clear, tenant) -- somebody may have written something there that is not a line
end
if redis.call("EXISTS", KEYS[1]) == 0 then
  redis.call("ZREM", KEYS[4], ARGV[2] .. "\t")
  redis.call("HDEL", KEYS[2], ARGV[2])
end
return 2 * gone > seen and 1 or 0

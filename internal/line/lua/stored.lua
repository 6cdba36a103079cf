-- Reads the tasks for a list: their messages without the payloads, which may be large, unless the payloads are asked
-- for.
--
-- KEYS    asynq's hashes of the tasks, at least one
-- ARGV[1] "1" if the payloads are asked for
-- ARGV[2] bytes of messages after which no further task is read
-- Reply: {bytes, and for each task read, at least the first: state, jt, message, error}; the first three are nil if the task lacks
--         them, and the error is "" unless somebody has written something there that is not a task
local payloads, most = ARGV[1] == "1", tonumber(ARGV[2])

-- varint reads a number of protobuf's at a position: it returns the number and the position behind it, or nil.
local function varint(text, at)
  local n, factor = 0, 1
  for i = at, at + 4 do
    local byte = string.byte(text, i)
    if not byte then return nil end
    n = n + (byte % 128) * factor
    if byte < 128 then return n, i + 1 end
    factor = factor * 128
  end
end

-- without removes the payload, field 2, from a message, where it is behind the type, field 1.
local function without(msg)
  if #msg <= 512 or string.byte(msg, 1) ~= 10 then return msg end
  local size, at = varint(msg, 2)
  if not size then return msg end
  at = at + size
  if string.byte(msg, at) ~= 18 then return msg end
  local length, from = varint(msg, at + 1)
  if not length or from + length > #msg + 1 then return msg end
  return string.sub(msg, 1, at - 1) .. string.sub(msg, from + length)
end

local reply, bytes = {0}, 0
for _, key in ipairs(KEYS) do
  local known = redis.pcall("HMGET", key, "state", "jt", "msg")
  if known.err then
    if string.sub(known.err, 1, 9) ~= "WRONGTYPE" then return known end
    known = {false, false, false, err = known.err}
  end
  local msg, n = known[3], #reply
  if msg then
    bytes = bytes + #msg
    if not payloads then msg = without(msg) end
  end
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = known[1], known[2], msg, known.err or ""
  if bytes > most then break end
end
reply[1] = bytes
return reply

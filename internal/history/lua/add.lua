-- Adds counts to the current bucket.
--
-- KEYS[1]  what buckets are named after: KEYS[1]:NUMBER, in its slot
-- ARGV[1]  how long a bucket is, in seconds of Redis's clock
-- ARGV[2]  for how long it is kept, in seconds
-- ARGV[3]  how many fields it has at most, beside those of ARGV[4] and of all jobs ('')
-- ARGV[4]  the limit that stands for those beyond them
-- ARGV     for each count: "+" to add it or "m" to keep the largest, its kind, its limit, the number
local t = redis.call('TIME')
local key = KEYS[1] .. ':' .. string.format('%d', math.floor(tonumber(t[1]) / tonumber(ARGV[1])))
local most, fields = tonumber(ARGV[3]), redis.call('HLEN', key)
for i = 5, #ARGV, 4 do
  local field, n = ARGV[i + 1] .. ':' .. ARGV[i + 2], tonumber(ARGV[i + 3])
  local old = redis.call('HGET', key, field)
  if not old and fields >= most and ARGV[i + 2] ~= '' then
    field = ARGV[i + 1] .. ':' .. ARGV[4]
    old = redis.call('HGET', key, field)
  end
  if not old then fields = fields + 1 end
  old = tonumber(old or '0') or 0 -- somebody else's
  if not (old >= 0 and old < 1e15) then old = 0 end
  n = ARGV[i] == 'm' and math.max(old, n) or old + n
  redis.call('HSET', key, field, string.format('%.0f', n))
end
redis.call('EXPIRE', key, ARGV[2])
return redis.status_reply('OK')

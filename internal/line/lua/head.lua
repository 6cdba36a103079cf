-- Puts tasks behind the first ones of a queue: of an asynq list whose next task is the last element.

-- leading returns how many of the first tasks stay ahead. stays(id) says whether a task stays; then the tasks before it
-- stay, too. leading counts at most 2047 tasks.
local function leading(list, stays)
  local function is(n)
    local id = redis.pcall("LRANGE", list, -n, -n)[1] -- none, if the user lacks the right to read the list
    return id and stays(id)
  end
  local all, more = 0, 1 -- the first all tasks stay, but perhaps not the first more tasks
  while all < 1000 and is(more) do all, more = more, 2 * more end
  while more - all > 1 do
    local n = math.floor((all + more) / 2)
    if is(n) then all = n else more = n end
  end
  return all
end

-- behind puts tasks, the next one first, behind the first n.
local function behind(list, n, tasks)
  local first, ids = n > 0 and redis.call("RPOP", list, n) or {}, {}
  for i = #tasks, 1, -1 do ids[#ids + 1] = tasks[i] end
  for i = #first, 1, -1 do ids[#ids + 1] = first[i] end
  for i = 1, #ids, 1000 do redis.call("RPUSH", list, unpack(ids, i, math.min(i + 999, #ids))) end
end


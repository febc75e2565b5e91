-- KEYS: the counter of ids, then the list of each scan's parcel; ARGV: what scans' keys begin with, the most scans of
-- a parcel, then the four texts of each scan.
-- Returns the first id that was given, then of each scan its count; 0 for one that is refused. The others have ids
-- that follow on each other. All lists are read before anything is written, so that an error reply proves that nothing
-- was changed.
local answer, inserted = { 0 }, 0
for i = 2, #KEYS do
  local rows = redis.call('LLEN', KEYS[i])
  if rows < tonumber(ARGV[2]) then
    answer[i] = rows + 1
    inserted = inserted + 1
  else
    answer[i] = 0
  end
end
if inserted == 0 then
  return answer
end
local date = now()
local id = redis.call('INCRBY', KEYS[1], inserted) - inserted + 1
answer[1] = id
for i = 2, #KEYS do
  if answer[i] > 0 then
    put(ARGV[1], KEYS[i], id, answer[i], date, 4 * i - 5)
    id = id + 1
  end
end
return answer

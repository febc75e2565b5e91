-- KEYS: the counter of ids, then the locks that are held, then the list of each scan's parcel; ARGV: our token, how
-- many locks, what scans' keys begin with, then the count and the four texts of each scan: none to give up only.
-- Inserts the scans and gives up the locks. Returns the first of their ids, which follow on each other, 0 without
-- scans; or nil, with nothing inserted, if a lock is no longer ours: a holder that outlived its lease is fenced off here.
local token, last_lock = ARGV[1], 1 + ARGV[2]
local ours = {}
for i = 2, last_lock do
  if redis.call('GET', KEYS[i]) == token then
    ours[#ours + 1] = KEYS[i]
  end
end
local first, scans = 0, #KEYS - last_lock
local is_held = #ours == last_lock - 1
if is_held and scans > 0 then
  local date = now()
  first = redis.call('INCRBY', KEYS[1], scans) - scans + 1
  for i = 1, scans do
    local at = 5 * i - 1
    put(ARGV[3], KEYS[last_lock + i], first + i - 1, ARGV[at], date, at + 1)
  end
end
for _, lock in ipairs(ours) do
  redis.call('DEL', lock)
end
return is_held and first

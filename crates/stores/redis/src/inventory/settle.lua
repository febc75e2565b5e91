-- KEYS: the group's counts, its lock; ARGV: our token, then warehouse, change, …: none to give up only.
-- Returns 1; or 0 if the lock is no longer ours, with nothing changed: a holder that outlived its lease is
-- fenced off here.
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return 0
end
for i = 2, #ARGV, 2 do
  redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('DEL', KEYS[2])
return 1

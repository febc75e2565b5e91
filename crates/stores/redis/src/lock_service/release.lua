-- KEYS: the lock; ARGV: the owner. Returns 1; or 0 if the lock is not the owner's.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
return 1

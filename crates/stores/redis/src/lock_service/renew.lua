-- KEYS: the lock; ARGV: the owner, the lease in milliseconds. Returns 1; or 0 if the lock is not the owner's.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1

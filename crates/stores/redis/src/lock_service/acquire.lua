-- KEYS: the lock, the counter of tokens; ARGV: the owner, the lease in milliseconds.
-- Returns the grant's token; nil if another holds the lock. The lock is set last, so that an error reply
-- proves that it was not.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return false
end
local token = redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return token

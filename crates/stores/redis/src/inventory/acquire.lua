-- KEYS: the group's counts, its lock, the fencing counter; ARGV: the lease in milliseconds.
-- Returns the token under which the lock is now held, and the group; or nil if another holds it.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return false
end
local token = redis.call('INCR', KEYS[3])
redis.call('SET', KEYS[2], token, 'PX', ARGV[1])
return { token, redis.call('HGETALL', KEYS[1]) }

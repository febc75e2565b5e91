-- KEYS: the hash that is locked, its lock, the fencing counter; ARGV: the lease in milliseconds, then the
-- fields to be read: all with their names if none is named.
-- Returns the token under which the lock is now held, and what was read; or nil if another holds it.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return false
end
local token = redis.call('INCR', KEYS[3])
redis.call('SET', KEYS[2], token, 'PX', ARGV[1])
if #ARGV == 1 then
  return { token, redis.call('HGETALL', KEYS[1]) }
end
return { token, redis.call('HMGET', KEYS[1], unpack(ARGV, 2)) }

-- KEYS: the record; ARGV: field, value, … Returns the version that was written; or nil if there is no such
-- record. What may be refused comes first, so that an error reply proves that nothing was changed.
if redis.call('HEXISTS', KEYS[1], 'version') == 0 then
  return false
end
local version = redis.call('HINCRBY', KEYS[1], 'version', 1)
redis.call('HSET', KEYS[1], unpack(ARGV))
return version

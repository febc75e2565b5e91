-- KEYS: the record, then the index of keys if there is one; ARGV: the record's key in the index, then field,
-- value, … Returns 1; or 0 if there is such a record.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
if KEYS[2] then
  redis.call('ZADD', KEYS[2], 0, ARGV[1])
end
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
return 1

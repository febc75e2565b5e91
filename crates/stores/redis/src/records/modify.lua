-- KEYS: the record; ARGV: field, value, … Returns the record as it was; its version is nil, with nothing
-- changed, if there is no such record.
local columns = {}
for i = 1, #ARGV, 2 do
  columns[#columns + 1] = ARGV[i]
end
local record = redis.call('HMGET', KEYS[1], 'version', unpack(columns))
if record[1] then
  redis.call('HINCRBY', KEYS[1], 'version', 1)
  redis.call('HSET', KEYS[1], unpack(ARGV))
end
return record

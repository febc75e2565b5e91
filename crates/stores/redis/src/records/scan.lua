-- Reads columns (...) of up to `length` records from a key on.
local function scan(index, prefix, from, length, ...)
  local records = redis.call('ZRANGE', index, '[' .. from, '+', 'BYLEX', 'LIMIT', 0, length)
  for i, key in ipairs(records) do
    records[i] = redis.call('HMGET', prefix .. key, ...)
  end
  return records
end

-- KEYS: the list of a parcel; ARGV: what scans' keys begin with, then the columns. Returns of each scan its id and its
-- columns: none where there is no hash of this id.
local answer = {}
for _, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  local scan = redis.pcall('HMGET', ARGV[1] .. id, unpack(ARGV, 2))
  answer[#answer + 1] = id
  answer[#answer + 1] = scan.err and {} or scan
end
return answer

-- KEYS: the hash that is locked, its lock; ARGV: our token, then HSET field, value, …, or HINCRBY field,
-- change, …: neither to give up only.
-- Returns 1; or 0 if the lock is no longer ours, with nothing changed: a holder that outlived its lease is
-- fenced off here.
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return 0
end
if ARGV[2] == 'HSET' then
  redis.call('HSET', KEYS[1], unpack(ARGV, 3))
elseif ARGV[2] == 'HINCRBY' then
  for i = 3, #ARGV, 2 do
    redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
redis.call('DEL', KEYS[2])
return 1

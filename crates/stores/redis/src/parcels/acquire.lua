-- KEYS: the fencing counter, then the list of each parcel, then the lock of each; ARGV: the lease in milliseconds.
-- Returns the token under which all locks are now held, and how many scans each parcel has; or nil, with none taken,
-- if another holds one of them. All are taken at once, so that no two clients wait for each other.
local parcels = (#KEYS - 1) / 2
for i = 2 + parcels, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    return false
  end
end
local rows = {}
for i = 1, parcels do
  rows[i] = redis.call('LLEN', KEYS[1 + i])
end
local token = redis.call('INCR', KEYS[1])
for i = 2 + parcels, #KEYS do
  redis.call('SET', KEYS[i], token, 'PX', ARGV[1])
end
return { token, rows }

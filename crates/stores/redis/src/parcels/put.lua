-- The time of the server's clock, in seconds.
local function now()
  local time = redis.call('TIME')
  return string.format('%s.%06d', time[1], time[2])
end

-- Adds a scan and its id to its parcel's list. Its texts are the four arguments from `at` on.
local function put(prefix, list, id, count, date, at)
  id = string.format('%.0f', id)
  redis.call('HSET', prefix .. id, 'hash', ARGV[at], 'type', ARGV[at + 1], 'count', count,
    'machine', ARGV[at + 2], 'code', ARGV[at + 3], 'date', date)
  redis.call('RPUSH', list, id)
end


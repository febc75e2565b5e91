-- Several requests, in their order. KEYS: the record of each, then the index of keys.
-- ARGV: what records' keys begin with, how many requests, how many columns, the columns; then of each request
-- its letter, how many arguments it has, and these: of a read none; of an update or a modify field, value, …;
-- of an insert the record's key in the index ('' without one), then field, value, …; of a scan the first key
-- and the length.
-- Returns of each the version written, if one was, and the records read; nil, with nothing changed, if a
-- record is not there that must be, or the other way round.
local requests, last_column = tonumber(ARGV[2]), 3 + ARGV[3]

-- calls each(i, letter, first argument, last argument) for every request, as long as that returns true
local function all(each)
  local at = last_column + 1
  for i = 1, requests do
    local first = at + 2
    local last = first + ARGV[at + 1] - 1
    if not each(i, ARGV[at], first, last) then
      return false
    end
    at = last + 1
  end
  return true
end

local is_there = {}
local can_be_done = all(function(i, letter)
  if letter == 's' then
    return true
  end
  local key = KEYS[i]
  if is_there[key] == nil then
    is_there[key] = redis.call('HEXISTS', key, 'version') == 1
  end
  local fits = is_there[key] == (letter ~= 'i')
  is_there[key] = true
  return fits
end)
if not can_be_done then
  return false
end

local answers = {}
all(function(i, letter, first, last)
  local key, written, records = KEYS[i], false, {}
  if letter == 's' then
    records = scan(KEYS[#KEYS], ARGV[1], ARGV[first], ARGV[first + 1], unpack(ARGV, 4, last_column))
  elseif letter == 'i' then
    if ARGV[first] ~= '' then
      redis.call('ZADD', KEYS[#KEYS], 0, ARGV[first])
    end
    redis.call('HSET', key, unpack(ARGV, first + 1, last))
  else
    if letter ~= 'u' then
      records[1] = redis.call('HMGET', key, unpack(ARGV, 4, last_column))
    end
    if letter ~= 'r' then
      written = redis.call('HINCRBY', key, 'version', 1)
      redis.call('HSET', key, unpack(ARGV, first, last))
    end
  end
  answers[i] = { written, records }
  return true
end)
return answers

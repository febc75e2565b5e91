-- KEYS: the group's counts; ARGV: units wanted. Returns warehouse, units, …: nothing if there are too few.
-- Every write comes after every decision, so that an error reply proves that nothing was changed.
local flat = redis.call('HGETALL', KEYS[1])
local held = {}
for i = 1, #flat, 2 do
  held[#held + 1] = { tonumber(flat[i]), tonumber(flat[i + 1]) }
end
table.sort(held, function(a, b) return a[1] < b[1] end)
local wanted, taken = tonumber(ARGV[1]), {}
for _, tuple in ipairs(held) do
  local count = math.min(tuple[2], wanted)
  if count > 0 then
    taken[#taken + 1] = tuple[1]
    taken[#taken + 1] = count
    wanted = wanted - count
  end
end
if wanted > 0 then
  return {}
end
for i = 1, #taken, 2 do
  redis.call('HINCRBY', KEYS[1], taken[i], -taken[i + 1])
end
return taken

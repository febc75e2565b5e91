-- Claims again what a consumer has in hand, but for what others have claimed meanwhile, in one step. KEYS: the stream.
-- ARGV: the group, the consumer, for how long it is to count as not heard of, and the ids. Returns those that are its own.
local own = {}
for place = 4, #ARGV do
  local id = ARGV[place]
  if #redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1, ARGV[2]) > 0 then
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id, 'IDLE', ARGV[3], 'JUSTID')
    own[#own + 1] = id
  end
end
return own

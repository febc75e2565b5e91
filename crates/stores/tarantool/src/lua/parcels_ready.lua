-- ...: the name of a trial's space of parcels, its last id, and whether it has an index on the hash. Adds the sequence
-- of ids, which is dropped with the space, and the index.
local name, last, is_indexed = ...
local space = box.space[name]
space.index.primary:alter({sequence = true})
if last > 0 then
  box.sequence[name .. '_seq']:set(last)
end
if is_indexed then
  space:create_index('hash', {parts = {'hash'}, unique = false})
end

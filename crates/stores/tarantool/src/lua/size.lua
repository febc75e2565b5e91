-- ...: the name of a trial's space. Returns its number of tuples, their bytes and those of its indexes.
local space = box.space[...]
local bytes, index = 0, 0
while space.index[index] ~= nil do
  bytes = bytes + space.index[index]:bsize()
  index = index + 1
end
return space:len(), space:bsize(), bytes

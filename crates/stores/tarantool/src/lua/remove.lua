-- ...: the prefix, the mark's name. Removes all under the prefix; the mark goes last: what is left of an
-- interrupted removal is still known as ours.
local prefix, mark = ...
local function names(view)
  local found = {}
  for _, object in view:pairs() do
    if object.name:sub(1, #prefix) == prefix then
      table.insert(found, object.name)
    end
  end
  return found
end
for _, name in ipairs(names(box.space._vfunc)) do
  box.schema.func.drop(name)
end
for _, name in ipairs(names(box.space._vspace)) do
  if name ~= mark then
    box.space[name]:drop()
  end
end
-- a sequence is dropped with its space, unless that was interrupted
for _, name in ipairs(names(box.space._vsequence)) do
  box.schema.sequence.drop(name)
end
if box.space[mark] ~= nil then
  box.space[mark]:drop()
end

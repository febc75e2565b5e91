-- ...: the prefix, the mark's name. Returns whether there is anything under the prefix, the run that left its
-- mark there, if one did, and whether there is nothing but an empty place for the mark.
local prefix, mark = ...
local found, other = false, false
for _, view in ipairs({box.space._vspace, box.space._vfunc, box.space._vsequence}) do
  for _, object in view:pairs() do
    if object.name:sub(1, #prefix) == prefix then
      found = true
      other = other or view ~= box.space._vspace or object.name ~= mark
    end
  end
end
local run
local space = box.space[mark]
if space ~= nil then
  -- a space of that name that holds no mark was not made here
  local _, tuples = pcall(space.select, space, {}, {limit = 1})
  local tuple = type(tuples) == 'table' and tuples[1]
  run = tuple and type(tuple[1]) == 'string' and tuple[1] or nil
  -- making the space, its index and its mark are three steps
  other = other or (run == nil and space.index[0] ~= nil and space:len() > 0)
end
return found, run, found and not other and run == nil

-- ...: the prefix, the mark's name. Returns whether there is anything under the prefix, and the run that left
-- its mark there, if one did.
local prefix, mark = ...
local found = false
for _, view in ipairs({box.space._vspace, box.space._vfunc}) do
  for _, object in view:pairs() do
    found = found or object.name:sub(1, #prefix) == prefix
  end
end
local run
if box.space[mark] ~= nil then
  -- a space of that name that holds no mark was not made here
  local _, tuples = pcall(box.space[mark].select, box.space[mark], {}, {limit = 1})
  local tuple = type(tuples) == 'table' and tuples[1]
  run = tuple and type(tuple[1]) == 'string' and tuple[1] or nil
end
return found, run

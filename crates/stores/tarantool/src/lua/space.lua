-- ...: a space's name. Returns its number, if there is such a space.
local space = box.space[...]
return space ~= nil and space.id or nil

-- ...: the name of a trial's space and procedure.
local name = ...
box.schema.func.drop(name, {if_exists = true})
if box.space[name] ~= nil then
  box.space[name]:drop()
end
-- a sequence is dropped with its space, unless that was interrupted
box.schema.sequence.drop(name .. '_seq', {if_exists = true})

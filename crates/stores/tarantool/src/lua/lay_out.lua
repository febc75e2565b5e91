-- ...: the name of a trial's space and procedure, the procedure's code, that of its latches, the space's format,
-- the names of its key's parts, and those of the parts of a second index by its name, if there is one.
local name, code, latches, format, parts, second, second_parts = ...
local space = box.schema.space.create(name, {format = format})
space:create_index('primary', {parts = parts})
if second ~= nil then
  space:create_index(second, {parts = second_parts})
end
-- kept with the data: a server that is started again has it again
box.schema.func.create(name, {language = 'LUA', body = string.format('(%s)(%q, %s)', code, name, latches)})

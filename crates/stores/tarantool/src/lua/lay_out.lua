-- ...: the name of a trial's space and procedure, the procedure's code.
local name, code = ...
local space = box.schema.space.create(name, {format = {
  {'sku', 'unsigned'}, {'condition', 'unsigned'}, {'source', 'unsigned'}, {'warehouse', 'unsigned'},
  {'price', 'unsigned'}, {'count', 'integer'}, {'version', 'unsigned'},
}})
space:create_index('primary', {parts = {'sku', 'condition', 'source', 'warehouse'}})
-- kept with the data: a server that is started again has it again
box.schema.func.create(name, {language = 'LUA', body = string.format('(%s)(%q)', code, name)})

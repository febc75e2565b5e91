-- ...: the name of a table's space, and its rows, of id and value.
local name, rows = ...
local space = box.schema.space.create(name, {format = {{'id', 'integer'}, {'value', 'integer'}}})
space:create_index('primary', {parts = {'id'}})
box.begin()
for _, row in ipairs(rows) do
  space:insert(row)
end
box.commit()

-- ...: the mark's name, the run.
local mark, run = ...
local space = box.schema.space.create(mark, {format = {{'run', 'string'}}})
space:create_index('primary')
space:insert({run})

-- ...: statements, each {kind, space, ids, divisor, equals, amount, adds}. Carries them out in one transaction that does not
-- yield before its commit, so that an error proves that nothing was changed. Returns for each an array: ids and values
-- in turn of a select, and the number of changed rows of any other.
local statements = ...
local VALUE = 2

local function space_of(name)
  return box.space[name] or box.error(box.error.NO_SUCH_SPACE, name)
end

-- the rows of these ids; without ids all rows, or those whose value, or its remainder, is as asked
local function find(space, ids, divisor, equals)
  local found = {}
  if ids ~= nil then
    for _, id in ipairs(ids) do
      local row = space:get(id)
      if row ~= nil then
        table.insert(found, row)
      end
    end
    return found
  end
  for _, row in space:pairs() do
    local value = row[VALUE]
    if divisor ~= nil then
      value = math.fmod(value, divisor)
    end
    if equals == nil or value == equals then
      table.insert(found, row)
    end
  end
  return found
end

local run = {
  select = function(_, rows)
    local reply = {}
    for _, row in ipairs(rows) do
      table.insert(reply, row[1])
      table.insert(reply, row[VALUE])
    end
    return reply
  end,

  update = function(space, rows, amount, adds)
    for _, row in ipairs(rows) do
      space:update(row[1], {{adds and '+' or '=', VALUE, amount}})
    end
    return {#rows}
  end,

  delete = function(space, rows)
    for _, row in ipairs(rows) do
      space:delete(row[1])
    end
    return {#rows}
  end,
}

local replies = {}
box.begin()
for i, statement in ipairs(statements) do
  local kind, name, ids, divisor, equals, amount, adds = unpack(statement, 1, 7)
  local space = space_of(name)
  if kind == 'insert' then
    space:insert({ids[1], amount})
    replies[i] = {1}
  else
    replies[i] = run[kind](space, find(space, ids, divisor, equals), amount, adds)
  end
end
box.commit()
return replies

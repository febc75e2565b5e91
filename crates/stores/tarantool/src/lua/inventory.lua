-- The procedure of one trial of the inventory, created with the name of the trial's space. It is called with
-- the name of an operation and its arguments, and may be called by whoever made it, without further rights.
--
-- Every operation reads and writes within one transaction that does not yield before its commit, so that an
-- error proves that nothing was changed.
function(name, latches_of)
  local SKU_STEP, CONDITION_STEP = 65536, 256
  local WAREHOUSE, COUNT, VERSION = 4, 6, 7
  local operations
  -- the server compiles this where there are no globals: what needs them is made at the first call
  return function(operation, ...)
    if operations ~= nil then
      return operations[operation](...)
    end
    local latches = setfenv(latches_of, getfenv())()
    local space = box.space[name]

    -- changes: {{warehouse, units}, ...}
    local function change(sku, condition, source, changes)
      for _, each in ipairs(changes) do
        local done = space:update({sku, condition, source, each[1]},
          {{'+', COUNT, each[2]}, {'+', VERSION, 1}})
        if done == nil then
          box.rollback()
          box.error({code = box.error.TUPLE_NOT_FOUND, reason = 'there is no such tuple in stock'})
        end
      end
    end

    local function change_alone(...)
      box.begin()
      change(...)
      box.commit()
    end

    local function key_of(sku, condition, source)
      return sku * SKU_STEP + condition * CONDITION_STEP + source
    end

    operations = {
      load = function(tuples)
        box.begin()
        for _, tuple in ipairs(tuples) do
          space:insert(tuple)
        end
        box.commit()
      end,

      -- native: returns {{warehouse, units}, ...}; nothing if there are too few
      capture = function(sku, condition, source, units)
        local taken, changes, wanted = {}, {}, units
        box.begin()
        for _, tuple in space:pairs({sku, condition, source}) do
          local count = math.min(tuple[COUNT], wanted)
          if count > 0 then
            table.insert(taken, {tuple[WAREHOUSE], count})
            table.insert(changes, {tuple[WAREHOUSE], -count})
            wanted = wanted - count
          end
          if wanted == 0 then
            break
          end
        end
        if wanted > 0 then
          box.rollback()
          return {}
        end
        change(sku, condition, source, changes)
        box.commit()
        return taken
      end,

      -- soft: changes: {{warehouse, units, version as read}, ...}; false if any is stale
      change_if_unchanged = function(sku, condition, source, changes)
        box.begin()
        for _, each in ipairs(changes) do
          local tuple = space:get({sku, condition, source, each[1]})
          if tuple == nil or tuple[VERSION] ~= each[3] then
            box.rollback()
            return false
          end
        end
        change(sku, condition, source, changes)
        box.commit()
        return true
      end,

      -- hard: takes the latch and returns its token with the group, or nil if that takes too long
      acquire = function(sku, condition, source, lease, patience)
        local token = latches.take(key_of(sku, condition, source), lease, patience)
        if token == nil then
          return nil
        end
        return token, space:select({sku, condition, source})
      end,

      -- hard: writes, if anything, and gives the latch up; false, with nothing changed, if it is no longer
      -- the caller's
      settle = function(sku, condition, source, token, changes)
        local key = key_of(sku, condition, source)
        return latches.settle(key, token, change_alone, sku, condition, source, changes)
      end,

      -- hard: takes the latch, writes and gives it up; false if it cannot be had
      change_latched = function(sku, condition, source, changes, lease, patience)
        local key = key_of(sku, condition, source)
        local token = latches.take(key, lease, patience)
        return token ~= nil and latches.settle(key, token, change_alone, sku, condition, source, changes)
      end,
    }
    return operations[operation](...)
  end
end

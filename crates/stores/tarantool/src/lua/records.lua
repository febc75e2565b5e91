-- The procedure of one trial of the records, created with the name of the trial's space. It is called with the
-- name of an operation and its arguments, and may be called by whoever made it, without further rights.
-- A record is a tuple of key, version and fields.
--
-- Every operation reads and writes within one transaction that does not yield before its commit, so that an
-- error proves that nothing was changed.
function(name, latches_of)
  local KEY, VERSION = 1, 2
  local operations
  -- the server compiles this where there are no globals: what needs them is made at the first call
  return function(operation, ...)
    if operations ~= nil then
      return operations[operation](...)
    end
    local latches = setfenv(latches_of, getfenv())()
    local space = box.space[name]

    local function replace(record)
      if record ~= nil then
        space:replace(record)
      end
    end

    -- replaces a record by one with the next version, which is written into it; returns the one that was
    -- there, or nil
    local function raise(record)
      local old = space:get(record[KEY])
      if old ~= nil then
        record[VERSION] = old[VERSION] + 1
        space:replace(record)
      end
      return old
    end

    -- what each request of a transaction does: returns whether it can be done, the version that it wrote, if it
    -- did, and the records that it read
    local requests = {
      read = function(key)
        local record = space:get(key)
        return record ~= nil, nil, {record}
      end,
      scan = function(key, length)
        return true, nil, space:select({key}, {iterator = 'GE', limit = length})
      end,
      insert = function(record)
        local is_new = space:get(record[KEY]) == nil
        if is_new then
          space:insert(record)
        end
        return is_new, nil, {}
      end,
      update = function(record)
        return raise(record) ~= nil, record[VERSION], {}
      end,
      rmw = function(record)
        local old = raise(record)
        return old ~= nil, record[VERSION], {old}
      end,
    }

    operations = {
      load = function(records)
        box.begin()
        for _, record in ipairs(records) do
          space:insert(record)
        end
        box.commit()
      end,

      -- soft: false, with nothing changed, if the record has not the version below the new one's
      replace_if_unchanged = function(record)
        box.begin()
        local old = space:get(record[KEY])
        if old == nil or old[VERSION] + 1 ~= record[VERSION] then
          box.rollback()
          return false
        end
        space:replace(record)
        box.commit()
        return true
      end,

      -- hard: takes the latch and returns its token, with the record if it is there; or nil if that takes too
      -- long. whole: return the record, not its version alone
      acquire = function(key, whole, lease, patience)
        local token = latches.take(key, lease, patience)
        if token == nil then
          return nil
        end
        local record = space:get(key)
        if record ~= nil and not whole then
          return token, {key, record[VERSION]}
        end
        return token, record
      end,

      -- hard: writes the record, if one is given, and gives the latch up; false, with nothing changed, if it is
      -- no longer the caller's
      settle = function(key, token, record)
        return latches.settle(key, token, replace, record)
      end,

      -- native: returns the record that was there, or nil
      modify = function(record)
        box.begin()
        local old = raise(record)
        box.commit()
        return old
      end,

      -- native: all or nothing of several requests, {{name, argument, ...}, ...}; returns {{version written,
      -- records read}, ...}, or nil if one of them cannot be done
      transact = function(all)
        local answers = {}
        box.begin()
        for i, each in ipairs(all) do
          local can_be_done, written, records = requests[each[1]](each[2], each[3])
          if not can_be_done then
            box.rollback()
            return nil
          end
          answers[i] = {written or box.NULL, records}
        end
        box.commit()
        return answers
      end,
    }
    return operations[operation](...)
  end
end

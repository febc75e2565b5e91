-- The procedure of one trial of the parcels, created with the name of the trial's space. It is called with the name of
-- an operation and its arguments, and may be called by whoever made it, without further rights.
-- A scan is a tuple of id, hash, type, count, machine, code and date. The space's sequence gives the id.
--
-- Every operation reads and writes within one transaction that does not yield before its commit, so that an
-- error proves that nothing was changed.
function(name, latches_of)
  local ID, HASH, COUNT = 1, 2, 4
  local operations
  -- the server compiles this where there are no globals: what needs them is made at the first call
  return function(operation, ...)
    if operations ~= nil then
      return operations[operation](...)
    end
    local fiber = require('fiber')
    local latches = setfenv(latches_of, getfenv())()
    local space = box.space[name]

    -- how many scans each parcel has; without an index one walk over the space counts those of all
    local function count(hashes)
      local by_hash, counts = space.index.hash, {}
      if by_hash ~= nil then
        for i, hash in ipairs(hashes) do
          counts[i] = by_hash:count(hash)
        end
        return counts
      end
      local rows = {}
      for _, hash in ipairs(hashes) do
        rows[hash] = 0
      end
      for _, scan in space:pairs() do
        local hash = scan[HASH]
        if rows[hash] ~= nil then
          rows[hash] = rows[hash] + 1
        end
      end
      for i, hash in ipairs(hashes) do
        counts[i] = rows[hash]
      end
      return counts
    end

    -- scans: {{nil, hash, type, count, machine, code}, ...}; adds the ids that they are given
    local function insert(scans, ids)
      local date = fiber.time()
      for i, scan in ipairs(scans) do
        scan[7] = date
        ids[i] = space:insert(scan)[ID]
      end
    end

    local function insert_alone(scans, ids)
      box.begin()
      insert(scans, ids)
      box.commit()
    end

    local function hashes_of(scans)
      local hashes = {}
      for i, scan in ipairs(scans) do
        hashes[i] = scan[HASH]
      end
      return hashes
    end

    -- the keys of the latches in the order in which all take them
    local function in_order(hashes)
      local keys = {}
      for i, hash in ipairs(hashes) do
        keys[i] = hash
      end
      table.sort(keys)
      return keys
    end

    operations = {
      -- scans: {{id, hash, type, count, machine, code}, ...}
      load = function(scans)
        local date = fiber.time()
        box.begin()
        for _, scan in ipairs(scans) do
          scan[7] = date
          space:insert(scan)
        end
        box.commit()
      end,

      count = count,

      by_hash = function(hash)
        local found = {}
        for _, scan in space:pairs() do
          if scan[HASH] == hash then
            table.insert(found, scan)
          end
        end
        return found
      end,

      -- none: returns the ids
      insert = function(scans)
        local ids = {}
        insert_alone(scans, ids)
        return ids
      end,

      -- soft: returns the ids; or nil, with nothing changed, if a scan's count is not its parcel's next one
      insert_if_next = function(scans)
        local ids = {}
        box.begin()
        for i, rows in ipairs(count(hashes_of(scans))) do
          if rows + 1 ~= scans[i][COUNT] then
            box.rollback()
            return nil
          end
        end
        insert(scans, ids)
        box.commit()
        return ids
      end,

      -- hard: takes the latches and returns their token and how many scans each parcel has; or nil if that takes
      -- too long
      acquire = function(hashes, lease, patience)
        local token = latches.take_all(in_order(hashes), lease, patience)
        if token == nil then
          return nil
        end
        return token, count(hashes)
      end,

      -- hard: inserts the scans, if any, gives the latches up and returns the ids; or nil, with nothing changed, if
      -- one of the latches is no longer the caller's
      settle = function(hashes, token, scans)
        local ids = {}
        if latches.settle_all(hashes, token, insert_alone, scans, ids) then
          return ids
        end
        return nil
      end,

      -- native: inserts the scans of parcels that have fewer than `most`, with their parcels' next counts; returns the
      -- id and the count of each, both 0 for one that is refused
      insert_next = function(scans, most)
        local accepted, ids, answer = {}, {}, {}
        box.begin()
        for i, rows in ipairs(count(hashes_of(scans))) do
          if rows < most then
            scans[i][COUNT] = rows + 1
            table.insert(accepted, scans[i])
          end
        end
        insert(accepted, ids)
        box.commit()
        local next = 1
        for i, scan in ipairs(scans) do
          local is_accepted = accepted[next] == scan
          answer[2 * i - 1] = is_accepted and ids[next] or 0
          answer[2 * i] = is_accepted and scan[COUNT] or 0
          next = next + (is_accepted and 1 or 0)
        end
        return answer
      end,
    }
    return operations[operation](...)
  end
end

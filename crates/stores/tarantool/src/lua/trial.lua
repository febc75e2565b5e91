-- The procedure of one trial, created with the name of the trial's space. It is called with the name of an
-- operation and its arguments, and may be called by whoever made it, without further rights.
--
-- Every operation reads and writes within one transaction that does not yield before its commit, so that an
-- error proves that nothing was changed. Latches live in memory only: a server that is started again has
-- none, and no client that held one is still connected.
function(name)
  local SKU_STEP, CONDITION_STEP = 65536, 256
  local WAREHOUSE, COUNT, VERSION = 4, 6, 7
  local operations
  -- the server compiles this where there are no globals: what needs them is made at the first call
  return function(operation, ...)
    if operations ~= nil then
      return operations[operation](...)
    end
    local fiber = require('fiber')
    local space = box.space[name]

    -- changes: {{warehouse, units}, ...}
    local function change(sku, condition, source, changes)
      for _, each in ipairs(changes) do
        local done = space:update({sku, condition, source, each[1]},
          {{'+', COUNT, each[2]}, {'+', VERSION, 1}})
        if done == nil then
          box.rollback()
          error('there is no such tuple in stock')
        end
      end
    end

    local function change_alone(...)
      box.begin()
      change(...)
      box.commit()
    end

    local latches, last_token = {}, 0

    local function latch_of(sku, condition, source)
      local key = sku * SKU_STEP + condition * CONDITION_STEP + source
      local latch = latches[key]
      if latch == nil then
        latch = {freed = fiber.cond()}
        latches[key] = latch
      end
      return latch
    end

    local function is_held(latch)
      return latch.token ~= nil and fiber.clock() < latch.expires
    end

    -- waits for another holder; false if that takes too long, or nobody is left to have the latch
    local function await(latch, patience)
      local peer, deadline = box.session.peer(), fiber.clock() + patience
      while is_held(latch) do
        local now = fiber.clock()
        if now >= deadline then
          return false
        end
        latch.freed:wait(math.min(latch.expires, deadline) - now)
      end
      if peer ~= nil and box.session.peer() == nil then
        latch.freed:signal()
        return false
      end
      return true
    end

    -- takes the latch and returns its token, or nil
    local function take(latch, lease, patience)
      if is_held(latch) and not await(latch, patience) then
        return nil
      end
      last_token = last_token + 1
      latch.token, latch.expires = last_token, fiber.clock() + lease
      return last_token
    end

    local function give_up(latch, token)
      -- another may have taken it since, if the lease ended during the commit
      if latch.token == token then
        latch.token = nil
        latch.freed:signal()
      end
    end

    local function change_latched(latch, token, ...)
      local done, cause = pcall(change_alone, ...)
      give_up(latch, token)
      if not done then
        error(cause)
      end
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
        local token = take(latch_of(sku, condition, source), lease, patience)
        if token == nil then
          return nil
        end
        return token, space:select({sku, condition, source})
      end,

      -- hard: writes, if anything, and gives the latch up; false, with nothing changed, if it is no longer
      -- the caller's: a holder that outlived its lease is fenced off here
      settle = function(sku, condition, source, token, changes)
        local latch = latch_of(sku, condition, source)
        if latch.token ~= token or not is_held(latch) then
          return false
        end
        change_latched(latch, token, sku, condition, source, changes)
        return true
      end,

      -- hard: takes the latch, writes and gives it up; false if it cannot be had
      change_latched = function(sku, condition, source, changes, lease, patience)
        local latch = latch_of(sku, condition, source)
        local token = take(latch, lease, patience)
        if token == nil then
          return false
        end
        change_latched(latch, token, sku, condition, source, changes)
        return true
      end,
    }
    return operations[operation](...)
  end
end

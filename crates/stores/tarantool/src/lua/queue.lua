-- The procedure of one trial of a queue, created with the name of the trial's space. It is called with the name of
-- an operation and its arguments, and may be called by whoever made it, without further rights.
--
-- It does what the fifo tube of the `queue` rock does (https://github.com/tarantool/queue): a message is a tuple
-- of id, status, how often it was taken and its body; the oldest that is ready is taken next, stays as taken by a
-- session, and is deleted when that acknowledges it. It is ready again once the session is gone, or the server was
-- started again. Unlike the rock it takes and acknowledges several at once.
--
-- Every operation reads and writes within one transaction that does not yield before its commit, so that an
-- error proves that nothing was changed.
function(name)
  local ID, STATUS, TAKES = 1, 2, 3
  local READY, TAKEN = 'r', 't'
  -- seconds between two looks for sessions that are gone
  local LOOK = 0.1
  local operations
  -- the server compiles this where there are no globals: what needs them is made at the first call
  return function(operation, ...)
    if operations ~= nil then
      return operations[operation](...)
    end
    local fiber = require('fiber')
    local space = box.space[name]
    local by_status = space.index.status
    local arrived, waiting = fiber.cond(), 0
    -- by session: the ids of what it has taken, as keys
    local holders, next_look = {}, 0
    local last = space.index.primary:max()
    local last_id = last ~= nil and last[ID] or 0

    local function announce()
      if waiting > 0 then
        arrived:signal()
      end
    end

    -- commits; what is to be done if that fails is done before the error is thrown
    local function commit_or(undo)
      local done, cause = pcall(box.commit)
      if not done then
        undo()
        error(cause)
      end
    end

    local function is_gone(session)
      return not box.session.exists(session) or box.session.peer(session) == nil
    end

    -- makes what sessions that are gone have taken ready again
    local function take_back()
      local now = fiber.clock()
      if now < next_look then
        return
      end
      next_look = now + LOOK
      for session, held in pairs(holders) do
        if is_gone(session) then
          holders[session] = nil
          box.begin()
          for id in pairs(held) do
            space:update(id, {{'=', STATUS, READY}})
          end
          commit_or(function() holders[session] = held end)
          announce()
          -- others may have come and gone meanwhile
          next_look = 0
          return
        end
      end
    end

    local function add(body)
      last_id = last_id + 1
      space:insert({last_id, READY, 0, body})
    end

    local function forget(held, tuples)
      for _, tuple in ipairs(tuples) do
        held[tuple[ID]] = nil
      end
    end

    -- hands messages to the session, or to nobody in particular, who then has them for good
    local function hand_out(tuples, session)
      local held = session ~= nil and holders[session] or {}
      box.begin()
      for _, tuple in ipairs(tuples) do
        if session == nil then
          space:delete(tuple[ID])
        else
          space:update(tuple[ID], {{'=', STATUS, TAKEN}, {'+', TAKES, 1}})
          held[tuple[ID]] = true
        end
      end
      if session ~= nil then
        holders[session] = held
      end
      commit_or(function() forget(held, tuples) end)
    end

    operations = {
      put = function(body)
        add(body)
        announce()
      end,

      -- all of them or none
      put_many = function(bodies)
        box.begin()
        for _, body in ipairs(bodies) do
          add(body)
        end
        box.commit()
        announce()
      end,

      -- waits so long for messages, and returns up to so many, as they were before. keep: they are the session's
      -- until it acknowledges them; else they are gone
      take = function(limit, patience, keep)
        local session, deadline = box.session.id(), fiber.clock() + patience
        while true do
          take_back()
          local found = by_status:select({READY}, {limit = limit})
          if #found > 0 then
            hand_out(found, keep and session or nil)
            -- there may be more
            if #found == limit then
              announce()
            end
            return found
          end
          local left = deadline - fiber.clock()
          if left <= 0 then
            return {}
          end
          waiting = waiting + 1
          arrived:wait(left)
          waiting = waiting - 1
          if is_gone(session) then
            announce()
            return {}
          end
        end
      end,

      -- deletes what the session has taken: all of it or nothing
      ack = function(ids)
        local held = holders[box.session.id()] or {}
        box.begin()
        for _, id in ipairs(ids) do
          if not held[id] then
            box.rollback()
            box.error({code = box.error.TUPLE_NOT_FOUND, reason = 'a message was not taken by this session'})
          end
          space:delete(id)
        end
        box.commit()
        for _, id in ipairs(ids) do
          held[id] = nil
        end
      end,

      depth = function()
        return by_status:count({READY}), by_status:count({TAKEN})
      end,
    }
    -- what sessions took before the server was started again is ready; before the commit yields, others see that
    box.begin()
    for _, tuple in ipairs(by_status:select({TAKEN})) do
      space:update(tuple[ID], {{'=', STATUS, READY}})
    end
    commit_or(function() operations = nil end)
    return operations[operation](...)
  end
end

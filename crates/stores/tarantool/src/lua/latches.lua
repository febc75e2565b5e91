-- Latches, each by a key: with an owner's token, a lease and fencing. They live in memory only: a server that
-- is started again has none, and no client that held one is still connected.
function()
  local fiber = require('fiber')
  local latches, last_token = {}, 0

  local function is_held(latch)
    return latch.token ~= nil and fiber.clock() < latch.expires
  end

  -- a latch that nobody holds goes to one that waits for it, or is forgotten
  local function free(key, latch)
    latch.token = nil
    if latch.waiting > 0 then
      latch.freed:signal()
    else
      latches[key] = nil
    end
  end

  -- waits for another holder; false if that takes too long, or nobody is left to have the latch
  local function await(key, latch, patience)
    local peer, deadline = box.session.peer(), fiber.clock() + patience
    latch.freed = latch.freed or fiber.cond()
    latch.waiting = latch.waiting + 1
    while is_held(latch) and fiber.clock() < deadline do
      latch.freed:wait(math.min(latch.expires, deadline) - fiber.clock())
    end
    latch.waiting = latch.waiting - 1
    if is_held(latch) then
      return false
    end
    if peer ~= nil and box.session.peer() == nil then
      free(key, latch)
      return false
    end
    return true
  end

  -- takes a latch and returns its token, or nil
  local function take(key, lease, patience)
    local latch = latches[key]
    if latch == nil then
      latch = {waiting = 0}
      latches[key] = latch
    elseif is_held(latch) and not await(key, latch, patience) then
      return nil
    end
    last_token = last_token + 1
    latch.token, latch.expires = last_token, fiber.clock() + lease
    return last_token
  end

  -- calls change(...) if the token holds the latch, and gives it up; false, with nothing called, if it does
  -- not: a holder that outlived its lease is fenced off here
  local function settle(key, token, change, ...)
    local latch = latches[key]
    if latch == nil or latch.token ~= token or not is_held(latch) then
      return false
    end
    local done, cause = pcall(change, ...)
    -- another may have taken it since, if the lease ended during the commit
    if latch.token == token then
      free(key, latch)
    end
    if not done then
      error(cause)
    end
    return true
  end

  return {take = take, settle = settle}
end

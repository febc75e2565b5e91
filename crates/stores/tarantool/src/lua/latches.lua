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

  -- whether the latch of this key is held under this token
  local function is_ours(key, token)
    local latch = latches[key]
    return latch ~= nil and latch.token == token and is_held(latch)
  end

  -- another may have taken one of them since, if the lease ended
  local function free_all(keys, token, last)
    for i = 1, last do
      local latch = latches[keys[i]]
      if latch ~= nil and latch.token == token then
        free(keys[i], latch)
      end
    end
  end

  -- takes latches in this order, which must be the same for all, and returns the token under which all are held; or
  -- nil, with none taken, if that takes too long
  local function take_all(keys, lease, patience)
    local deadline = fiber.clock() + patience
    last_token = last_token + 1
    local token = last_token
    for i, key in ipairs(keys) do
      local latch = latches[key]
      if latch == nil then
        latch = {waiting = 0}
        latches[key] = latch
      elseif is_held(latch) and not await(key, latch, deadline - fiber.clock()) then
        free_all(keys, token, i - 1)
        return nil
      end
      latch.token, latch.expires = token, fiber.clock() + lease
    end
    -- the wait for the later ones is no part of the lease of the earlier ones
    for i = 1, #keys - 1 do
      if is_ours(keys[i], token) then
        latches[keys[i]].expires = fiber.clock() + lease
      end
    end
    return token
  end

  -- calls change(...) if the token holds all latches, and gives them up; false, with nothing called, if it does
  -- not: a holder that outlived its lease is fenced off here
  local function settle_all(keys, token, change, ...)
    for _, key in ipairs(keys) do
      if not is_ours(key, token) then
        free_all(keys, token, #keys)
        return false
      end
    end
    local done, cause = pcall(change, ...)
    free_all(keys, token, #keys)
    if not done then
      error(cause)
    end
    return true
  end

  -- takes a latch and returns its token, or nil
  local function take(key, lease, patience)
    return take_all({key}, lease, patience)
  end

  -- as settle_all, of one latch
  local function settle(key, token, change, ...)
    return settle_all({key}, token, change, ...)
  end

  return {take = take, settle = settle, take_all = take_all, settle_all = settle_all}
end

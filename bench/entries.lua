-- Sends entries with distinct ids; wrk's arguments behind -- are: the token, entries a request, a name for this run.
local count, run = 1, ""
local threads = 0
local next_id = 0

function setup(each)
  each:set("number", threads)
  threads = threads + 1
end

local function entry()
  next_id = next_id + 1
  return string.format(
    '{"id":"%s-%d-%08d","timestamp":"2026-11-23T10:15:00.123Z","level":"info","application":"shop",' ..
    '"message":"order %08d was paid by card and handed over to the parcel service at ten past four"}',
    run, number, next_id, next_id)
end

function init(arguments)
  count, run = tonumber(arguments[2]), arguments[3]
  wrk.method = "POST"
  wrk.headers["Authorization"] = "Bearer " .. arguments[1]
  wrk.headers["Content-Type"] = "application/json"
end

function request()
  if count == 1 then return wrk.format(nil, nil, nil, entry()) end
  local entries = {}
  for at = 1, count do entries[at] = entry() end
  return wrk.format(nil, nil, nil, "[" .. table.concat(entries, ",") .. "]")
end

-- Acquires and releases over the server's HTTP API, for wrk: one connection per thread (-t16 -c16),
-- because wrk mixes the requests of the connections of one thread. Every lock has a name of its own.

local threads = 0

function setup(thread)
  thread:set("id", threads)
  threads = threads + 1
end

function init()
  math.randomseed(os.time() + id)
  run = math.random(0, 0x7fffffff)
  turn = 0
end

function request()
  local path = turn % 2 == 0 and "/v1/acquire" or "/v1/release"
  local cycle = math.floor(turn / 2)
  turn = turn + 1
  local owner = string.format("%08x%08x%016x", run, id, cycle)
  local body = string.format('{"name":"wrk/%d/%d/%d","owner":"%s"}', run, id, cycle, owner)
  return wrk.format("POST", path, { ["Content-Type"] = "application/json" }, body)
end

-- arguments: port, wal_mode; the working directory holds the data
box.cfg{ wal_mode = arg[2],
  -- a bound, taken only as it is used: enough for a million records of 1 KB
  memtx_memory = 2 * 1024 * 1024 * 1024,
  -- requests that wait for a latch count as under way: with the usual 768, those of more clients would keep
  -- the holder's own from being read
  net_msg_max = 100000 }
-- listens only once the rights are there, so that no client meets a server without them
box.schema.user.grant('guest', 'read,write,execute,create,drop,alter', 'universe', nil, { if_not_exists = true })
box.cfg{ listen = '127.0.0.1:' .. arg[1] }

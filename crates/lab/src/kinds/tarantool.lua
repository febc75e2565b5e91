-- arguments: port, wal_mode, memtx_memory; the working directory holds the data
box.cfg{ wal_mode = arg[2],
  memtx_memory = tonumber(arg[3]),
  -- requests that wait for a latch count as under way: with the usual 768, those of more clients would keep
  -- the holder's own from being read
  net_msg_max = 100000 }
-- listens only once the rights are there, so that no client meets a server without them
box.schema.user.grant('guest', 'read,write,execute,create,drop,alter', 'universe', nil, { if_not_exists = true })
box.cfg{ listen = '127.0.0.1:' .. arg[1] }

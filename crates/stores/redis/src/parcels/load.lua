-- KEYS: the list of the scan's parcel; ARGV: what scans' keys begin with, the scan's id, its count and its four texts.
put(ARGV[1], KEYS[1], ARGV[2], ARGV[3], now(), 4)

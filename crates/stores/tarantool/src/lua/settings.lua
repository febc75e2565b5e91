-- Returns the product, the version, and the settings that bear on a guarantee or on speed; a version that has not one of
-- them leaves it out.
local settings = {}
for _, name in ipairs({
  'wal_mode', 'wal_max_size', 'memtx_memory', 'memtx_use_mvcc_engine', 'checkpoint_interval', 'readahead',
  'net_msg_max', 'read_only',
}) do
  if box.cfg[name] ~= nil then
    settings[name] = tostring(box.cfg[name])
  end
end
-- Picodata runs in a server of Tarantool's, and keeps its data by rules of its own
local product = rawget(_G, 'pico') ~= nil and 'Picodata on Tarantool' or box.info.package or require('tarantool').package
return product, box.info.version, settings

-- Returns a name that the server was given in its life, and the one of its data. The first is kept with the modules that
-- it has loaded, which nothing but its process knows.
local life = package.loaded['acidtest.life']
if life == nil then
  life = require('uuid').str()
  package.loaded['acidtest.life'] = life
end
return life, box.info.uuid

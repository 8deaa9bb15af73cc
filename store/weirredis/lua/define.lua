-- Makes ARGV[2] the definition KEYS[1] if the one in force has the version ARGV[1] (a double; 0: there is none), and
-- notifies listeners on the channel ARGV[3]. A definition is its version as a double, then the JSON. copy.lua writes the
-- copies afterwards.
local stored=redis.call('GET',KEYS[1])
local old=struct.unpack('<d',ARGV[1])
if old==0 then
  if stored then return '0' end
elseif not stored or struct.unpack('<d',stored)~=old then
  return '0'
end
redis.call('SET',KEYS[1],ARGV[2])
-- If the user may not publish, other instances find the definition at their next call.
redis.pcall('PUBLISH',ARGV[3],KEYS[1])
return '1'

-- Makes ARGV[2] the definition if the one in force has the version ARGV[1] (a double; 0: there is none), and notifies
-- listeners. copy.lua writes its copies afterwards. A definition is its version as a double, then the JSON.
local v=redis.call('GET',KEYS[1])
local old=struct.unpack('<d',ARGV[1])
if old==0 then
  if v then return '0' end
elseif not v or struct.unpack('<d',v)~=old then
  return '0'
end
redis.call('SET',KEYS[1],ARGV[2])
-- Without the right to publish, other instances find the definition at their next call.
redis.pcall('PUBLISH',ARGV[3],KEYS[1])
return '1'

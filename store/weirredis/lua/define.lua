-- Makes ARGV[2] the definition if the one in force has the version ARGV[1] (a double; 0: there is none), and
-- tells those who listen. The copies of it are written afterwards: see copy.lua. A definition is its version as a double, then the JSON.
local v=redis.call('GET',KEYS[1])
local old=struct.unpack('<d',ARGV[1])
if old==0 then
  if v then return '0' end
elseif not v or struct.unpack('<d',v)~=old then
  return '0'
end
redis.call('SET',KEYS[1],ARGV[2])
-- Who may not publish has defined it all the same: the others find it when they ask.
redis.pcall('PUBLISH',ARGV[3],KEYS[1])
return '1'

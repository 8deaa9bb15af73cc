-- Makes ARGV[1] the copy of the definition, unless the one that is there is as new. It is as in define.lua.
local v=redis.call('GET',KEYS[1])
if not v or struct.unpack('<d',v)<struct.unpack('<d',ARGV[1]) then redis.call('SET',KEYS[1],ARGV[1]) end
return '1'

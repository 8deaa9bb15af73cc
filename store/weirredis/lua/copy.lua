-- Makes ARGV[1] the copy of the definition, unless a newer one is there. It is as in define.lua. Two of the same version
-- have the same limits, but the later one can have a newer origin.
local v=redis.call('GET',KEYS[1])
if not v or v~=ARGV[1] and struct.unpack('<d',v)<=struct.unpack('<d',ARGV[1]) then redis.call('SET',KEYS[1],ARGV[1]) end
return '1'

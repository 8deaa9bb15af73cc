-- Makes ARGV[1] the copy KEYS[1] of the definition, unless a newer one is stored. Two definitions with the same version
-- have the same limits, and the later one has newer terms.
local stored=redis.call('GET',KEYS[1])
if not stored or stored~=ARGV[1] and struct.unpack('<d',stored)<=struct.unpack('<d',ARGV[1]) then
  redis.call('SET',KEYS[1],ARGV[1])
end
return '1'

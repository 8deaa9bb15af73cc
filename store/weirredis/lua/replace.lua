-- Replaces a state if it is still the one that was read.
--
-- KEYS[1] is the state.
-- ARGV[1] is version, anchor, period, the time of the line, missing of the old state as doubles, then what follows missing
-- in it. ARGV[2] is the new state, '' for one that is full. ARGV[3] is when it is full, as a double.
local stored=redis.call('GET',KEYS[1])
if not stored then return '0' end
local version,anchor,period,line_time,missing=struct.unpack('<ddddd',ARGV[1])
local stored_version,written,stored_missing=struct.unpack('<ddd',stored)
if stored_version~=version or stored_missing~=missing or written-(written-anchor)%period~=line_time
  or string.sub(stored,25)~=string.sub(ARGV[1],41) then
  return '0'
end
if ARGV[2]=='' then
  redis.call('DEL',KEYS[1])
else
  local delete_at=struct.unpack('<d',ARGV[3])
  redis.call('SET',KEYS[1],ARGV[2],'PXAT',{expiry})
end
return '1'

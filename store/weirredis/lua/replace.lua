-- Replaces a state by another one if it is still the one that was read.
--
-- ARGV[1]: of the old state version, anchor, period, the time of its tick, missing as doubles, and what follows missing in
-- it. ARGV[2]: the new state, '' for one that is full. ARGV[3]: when it is full, as a double.
local v=redis.call('GET',KEYS[1])
if not v then return '0' end
local ver,anchor,period,tick,missing=struct.unpack('<ddddd',ARGV[1])
local v0,at,m=struct.unpack('<ddd',v)
if v0~=ver or m~=missing or at-(at-anchor)%period~=tick or string.sub(v,25)~=string.sub(ARGV[1],41) then
  return '0'
end
if ARGV[2]=='' then
  redis.call('DEL',KEYS[1])
else
  local full=struct.unpack('<d',ARGV[3])
  redis.call('SET',KEYS[1],ARGV[2],'PXAT',{expiry})
end
return '1'

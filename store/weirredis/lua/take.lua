-- One Take of a bucket or a fixed window, so many permits or none: what is asked nearly always.
--
-- ARGV[1]: version, anchor, period, permits, refill, n as doubles, then the grid as it is stored.
-- A state is: version, time, missing as doubles, the grid, and held as a double where it is not 0.
-- It is also the answer, so that the usual case packs once. What else is answered, see encode.go.
--
-- The time is stored, not the line: now is part of the answer, and the line follows from it.
-- KEYS[2] has the limiter's definition, if there is one: its version as a double comes first.
{clock}
local call,unpack,pack=redis.call,struct.unpack,struct.pack
local a=ARGV[1]
local ver,anchor,period,permits,refill,n=unpack('<dddddd',a)
local def=call('GETRANGE',KEYS[2],0,7)
if def~='' and unpack('<d',def)>ver then return def end
local v=call('GET',KEYS[1])
local line,missing,held,lines=now-(now-anchor)%period,0,0,0
if v then
  local v0,at,m=unpack('<ddd',v)
  if v0~=ver then
    if v0>ver then return pack('<d',v0) end
    return pack('<dddB',ver,now,0,255)..v
  end
  missing=m
  if #v~=#a-24 then held=unpack('<d',v,#a-23) end
  lines=line-(at-(at-anchor)%period)
  if lines>0 then
    local paid=lines/period*refill
    missing=missing-paid
    if missing<0 then missing=0 end
    held=held-paid
  end
end
local no=missing+n>permits
if no then
  v=pack('<dddB',ver,now,missing,254)
  if held>0 then v=v..pack('<d',held) end
  -- A key that is always rejected must still learn that the clock has stepped back.
  if lines>=0 then return v end
else
  missing=missing+n
end
local s=pack('<ddd',ver,now,missing)..string.sub(a,49)
if held>0 then s=s..pack('<d',held) end
local full=line+((missing-1-(missing-1)%refill)/refill+1)*period
if full>9e18 then full=9e18 end
call('SET',KEYS[1],s,'PXAT',{expiry})
if no then return v end
return s

-- One request of a bucket or fixed window that takes n permits or none: nearly all requests are.
--
-- ARGV[1]: version, anchor, period, permits, refill, n as doubles, then the schedule as it is stored.
-- A state is: version, time, missing as doubles, the schedule, and the refund floor as a double if the first byte of the
-- schedule is above 127. It is also the answer, so that it is packed once. encode.go lists the other answers.
--
-- The time is stored, not the tick: now is part of the answer, and the tick follows from it.
-- KEYS[2] has the limiter's definition, if there is one. Its version, as a double, comes first.
{clock}
local call,unpack,pack=redis.call,struct.unpack,struct.pack
local a=ARGV[1]
local ver,anchor,period,permits,refill,n=unpack('<dddddd',a)
local def=call('GETRANGE',KEYS[2],0,7)
local newest=def~='' and unpack('<d',def) or 0
if newest>ver then return pack('<dddB',newest,now,0,252) end
local v=call('GET',KEYS[1])
local tick,missing,floor,ticks=now-(now-anchor)%period,0,0,0
if v then
  local v0,at,m=unpack('<ddd',v)
  if v0~=ver then
    if v0>ver then return pack('<dddB',v0,now,0,252) end
    return pack('<dddB',ver,now,0,255)..v
  end
  missing=m
  if string.byte(v,25)>127 then floor=unpack('<d',v,#v-7) end
  ticks=tick-(at-(at-anchor)%period)
  if ticks>0 then
    local paid=ticks/period*refill
    missing=missing-paid
    if missing<0 then missing=0 end
    floor=floor-paid
    if floor<0 then floor=0 end
  end
end
local no=missing+n>permits
if no then
  v=pack('<dddBd',ver,now,missing,254,floor)
  -- A key that is always rejected must still learn that the clock has stepped back.
  if ticks>=0 then return v end
else
  missing=missing+n
end
local s
if floor>0 then
  s=pack('<dddB',ver,now,missing,string.byte(a,49)+128)..string.sub(a,50)..pack('<d',floor)
else
  s=pack('<ddd',ver,now,missing)..string.sub(a,49)
end
local full=tick+((missing-1-(missing-1)%refill)/refill+1)*period
if full>9e18 then full=9e18 end
call('SET',KEYS[1],s,'PXAT',{expiry})
if no then return v end
return s

-- One request of a sliding window that takes n permits or none.
--
-- ARGV[1]: version, anchor, period, permits, segments, n as doubles, then the schedule as it is stored.
-- A state is: version, time, missing as doubles, the schedule, and for each segment in which permits were taken its tick and
-- its permits as doubles, the oldest first. It is also the answer.
-- KEYS[2] has the limiter's definition, if there is one. Its version, as a double, comes first.
{clock}
local call,unpack,pack=redis.call,struct.unpack,struct.pack
local a=ARGV[1]
local ver,anchor,period,permits,segs,n=unpack('<dddddd',a)
local def=call('GETRANGE',KEYS[2],0,7)
local newest=def~='' and unpack('<d',def) or 0
if newest>ver then return pack('<dddB',newest,now,0,252) end
local v=call('GET',KEYS[1])
local tick,missing,ticks,taken=now-(now-anchor)%period,0,0,''
local cur=(tick-anchor)/period
if v then
  local v0,at,m=unpack('<ddd',v)
  if v0~=ver then
    if v0>ver then return pack('<dddB',v0,now,0,252) end
    return pack('<dddB',ver,now,0,255)..v
  end
  missing=m
  local pos=#a-23
  ticks=(tick-(at-(at-anchor)%period))/period
  if ticks<0 then
    local t={}
    for i=pos,#v,16 do
      local l,p=unpack('<dd',v,i)
      t[#t+1]=pack('<dd',l+ticks,p)
    end
    taken=table.concat(t)
  else
    while pos<#v do
      local l,p=unpack('<dd',v,pos)
      if l>cur-segs then break end
      missing=missing-p
      pos=pos+16
    end
    taken=string.sub(v,pos)
  end
end
local no=missing+n>permits
if no then
  v=pack('<dddB',ver,now,missing,254)..taken
  if ticks>=0 then return v end
else
  missing=missing+n
  local before=0
  if taken~='' then
    local l,p=unpack('<dd',taken,#taken-15)
    if l==cur then
      before=p
      taken=string.sub(taken,1,-17)
    end
  end
  taken=taken..pack('<dd',cur,before+n)
end
local full=tick+segs*period
if full>9e18 then full=9e18 end
local s=pack('<ddd',ver,now,missing)..string.sub(a,49)..taken
call('SET',KEYS[1],s,'PXAT',{expiry})
if no then return v end
return s

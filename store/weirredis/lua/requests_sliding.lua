-- Any requests of a sliding window: Definition.Decide in Lua.
--
-- ARGV[1]: version, anchor, period, permits, segments as doubles, then the schedule as it is stored.
-- ARGV[2]: the requests, as in requests.lua. The state is as in take_sliding.lua.
-- KEYS[2] has the limiter's definition, if there is one. Its version, as a double, comes first.
{clock}
local call,unpack,pack=redis.call,struct.unpack,struct.pack
local a,requests=ARGV[1],ARGV[2]
local ver,anchor,period,permits,segs=unpack('<ddddd',a)
local def=call('GETRANGE',KEYS[2],0,7)
local newest=def~='' and unpack('<d',def) or 0
if newest>ver then return pack('<dddB',newest,now,0,252) end
local v=call('GET',KEYS[1])
local tick,missing,ticks=now-(now-anchor)%period,0,0
local cur=(tick-anchor)/period
local at,took={},{}
if v then
  local v0,t=unpack('<dd',v)
  if v0~=ver then
    if v0>ver then return pack('<dddB',v0,now,0,252) end
    return pack('<dddB',ver,now,0,255)..v
  end
  ticks=(tick-(t-(t-anchor)%period))/period
  for i=#a-15,#v,16 do
    local l,p=unpack('<dd',v,i)
    if ticks<0 then l=l+ticks end
    if l>cur-segs then
      at[#at+1]=l
      took[#took+1]=p
      missing=missing+p
    end
  end
end
local min,max=math.min,math.max
local answers,changed,prev={},ticks<0 and missing>0,0
for i=1,#requests,34 do
  local op,flags,lo,hi,rtick=unpack('<BBddd',requests,i)
  local n
  if flags%2==1 and prev==-1 then
    n=-1
  elseif op<2 then
    if op==0 then
      local free=permits-missing
      if free<max(lo,1) then n=-1 else n=min(hi,free) end
    else
      n=max(min(hi,2^51-missing),0)
    end
    if n>0 then
      local last=#at
      if at[last]~=cur then
        last=last+1
        at[last],took[last]=cur,0
      end
      took[last]=took[last]+n
      missing=missing+n
    end
  else
    n=0
    for j=1,#at do
      if at[j]==rtick then
        n=min(hi,took[j])
        took[j]=took[j]-n
        missing=missing-n
        if took[j]==0 then
          table.remove(at,j)
          table.remove(took,j)
        end
        break
      end
    end
  end
  if n>0 then changed=true end
  prev=n
  answers[#answers+1]=pack('<d',n)
end
local taken={}
for j=1,#at do taken[j]=pack('<dd',at[j],took[j]) end
taken=table.concat(taken)
if changed then
  if missing>0 then
    local full=anchor+(at[#at]+segs)*period
    if full>9e18 then full=9e18 end
    call('SET',KEYS[1],pack('<ddd',ver,now,missing)..string.sub(a,41)..taken,'PXAT',{expiry})
  elseif v then
    call('DEL',KEYS[1])
  end
end
return pack('<dddB',ver,now,missing,253)..table.concat(answers)..taken

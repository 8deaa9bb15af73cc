-- Any requests of a bucket or fixed window: Definition.Decide in Lua.
--
-- ARGV[1]: version, anchor, period, permits, refill as doubles, then the schedule as it is stored.
-- ARGV[2]: the requests, each: op, flags as bytes; min, max, the receipt's tick and missing as doubles.
-- The state is as in take.lua.
-- KEYS[2] has the limiter's definition, if there is one. Its version, as a double, comes first.
{clock}
local call,unpack,pack=redis.call,struct.unpack,struct.pack
local a,requests=ARGV[1],ARGV[2]
local ver,anchor,period,permits,refill=unpack('<ddddd',a)
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
local min,max=math.min,math.max
local index=(tick-anchor)/period
local answers,changed,prev={},ticks<0 and missing>0,0
for i=1,#requests,34 do
  local op,flags,lo,hi,rtick,rmissing=unpack('<BBdddd',requests,i)
  local n
  if flags%2==1 and prev==-1 then
    n=-1
  elseif op==0 then
    local free=permits-missing
    if free<max(lo,1) then n=-1 else
      n=min(hi,free)
      missing=missing+n
      if flags>=2 then
        changed=changed or floor~=missing
        floor=missing
      end
    end
  elseif op==1 then
    n=min(hi,2^51-missing)
    if n<0 then n=0 end
    missing=missing+n
  else
    local unpaid=rmissing
    if index>rtick then unpaid=unpaid-(index-rtick)*refill end
    if op==2 then
      n=max(min(hi,unpaid,missing-floor),0)
    elseif missing>0 and unpaid==missing then
      n=min(hi,missing)
    else
      n=0
    end
    missing=missing-n
    if floor>missing then floor=missing end
  end
  if n>0 then changed=true end
  prev=n
  answers[#answers+1]=pack('<d',n)
end
if changed then
  if missing>0 then
    local full=tick+((missing-1-(missing-1)%refill)/refill+1)*period
    if full>9e18 then full=9e18 end
    local s
    if floor>0 then
      s=pack('<dddB',ver,now,missing,string.byte(a,41)+128)..string.sub(a,42)..pack('<d',floor)
    else
      s=pack('<ddd',ver,now,missing)..string.sub(a,41)
    end
    call('SET',KEYS[1],s,'PXAT',{expiry})
  elseif v then
    call('DEL',KEYS[1])
  end
end
return pack('<dddB',ver,now,missing,253)..table.concat(answers)..pack('<d',floor)

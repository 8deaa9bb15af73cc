-- Any asks of a bucket or a fixed window: Definition.Decide in Lua.
--
-- ARGV[1]: version, anchor, period, permits, refill as doubles, then the grid as it is stored.
-- ARGV[2]: the asks, each: op, flags as bytes; min, max, mark's line, mark's after as doubles.
-- The state is as in take.lua.
-- KEYS[2] has the limiter's definition, if there is one: its version as a double comes first.
{clock}
local call,unpack,pack=redis.call,struct.unpack,struct.pack
local a,asks=ARGV[1],ARGV[2]
local ver,anchor,period,permits,refill=unpack('<ddddd',a)
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
  if #v~=#a-16 then held=unpack('<d',v,#a-15) end
  lines=line-(at-(at-anchor)%period)
  if lines>0 then
    local paid=lines/period*refill
    missing=missing-paid
    if missing<0 then missing=0 end
    held=held-paid
    if held<0 then held=0 end
  end
end
local min,max=math.min,math.max
local index=(line-anchor)/period
local answers,changed,prev={},lines<0 and missing>0,0
for i=1,#asks,34 do
  local op,flags,lo,hi,mline,mafter=unpack('<BBdddd',asks,i)
  local n
  if flags%2==1 and prev==-1 then
    n=-1
  elseif op==0 then
    local free=permits-missing
    if free<max(lo,1) then n=-1 else
      n=min(hi,free)
      missing=missing+n
      if flags>=2 then
        changed=changed or held~=missing
        held=missing
      end
    end
  elseif op==1 then
    n=min(hi,2^51-missing)
    if n<0 then n=0 end
    missing=missing+n
  else
    local unpaid=mafter
    if index>mline then unpaid=unpaid-(index-mline)*refill end
    if op==2 then
      n=max(min(hi,unpaid,missing-held),0)
    elseif missing>0 and unpaid==missing then
      n=min(hi,missing)
    else
      n=0
    end
    missing=missing-n
    if held>missing then held=missing end
  end
  if n>0 then changed=true end
  prev=n
  answers[#answers+1]=pack('<d',n)
end
local tail=held>0 and pack('<d',held) or ''
if changed then
  if missing>0 then
    local full=line+((missing-1-(missing-1)%refill)/refill+1)*period
    if full>9e18 then full=9e18 end
    call('SET',KEYS[1],pack('<ddd',ver,now,missing)..string.sub(a,41)..tail,'PXAT',{expiry})
  elseif v then
    call('DEL',KEYS[1])
  end
end
return pack('<dddB',ver,now,missing,253)..table.concat(answers)..tail

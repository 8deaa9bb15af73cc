-- Decides any requests of a bucket or fixed window: backend.Definition.Decide in Lua.
--
-- KEYS[1] is the state, as in take.lua. KEYS[2] is the definition, if there is one: see define.lua.
-- ARGV[1] is version, anchor, period, permits, refill as doubles, then the schedule as it is stored.
-- ARGV[2] is the requests, each: op, flags (1: if previous, 2: block) as bytes; min, max, the receipt's line and taken as
-- doubles.
{clock}
local call,unpack,pack=redis.call,struct.unpack,struct.pack
local arg,requests=ARGV[1],ARGV[2]
local version,anchor,period,permits,refill=unpack('<ddddd',arg)
local plain=#arg-16 -- the length of a state without floor and refunded
{check_definition}
{read_bucket}
local min,max=math.min,math.max
local line=(line_time-anchor)/period
local granted,changed,previous={},elapsed<0 and missing+refunded>0,0
for i=1,#requests,34 do
  local op,flags,least,most,receipt_line,taken=unpack('<BBdddd',requests,i)
  local n
  if flags%2==1 and previous==-1 then
    n=-1
  elseif op==0 then -- backend.OpTake
    local available=permits-missing
    if available<max(least,1) then n=-1 else
      n=min(most,available)
      missing=missing+n
      if flags>=2 then
        changed=changed or floor~=missing
        floor=missing
      end
    end
  elseif op==1 then -- backend.OpCharge
    n=max(min(most,2^51-missing),0)
    missing=missing+n
  elseif op==3 then -- backend.OpReturnBlock
    n=0
    if missing>0 and taken-max(line-receipt_line,0)*refill==missing+refunded then n=min(most,missing) end
    missing=missing-n
    floor=min(floor,missing)
  else -- backend.OpRefund, backend.OpGiveBack
    local worth=min(missing-floor,2^51-refunded)
    if op==2 and line>receipt_line then worth=min(worth,taken-(line-receipt_line)*refill-refunded) end
    n=max(min(most,worth),0)
    missing=missing-n
    refunded=refunded+n
  end
  if n>0 then changed=true end
  previous=n
  granted[#granted+1]=pack('<d',n)
end
local tail=''
if floor>0 or refunded>0 then tail=pack('<dd',floor,refunded) end
if changed then
  if missing+refunded>0 then
    {bucket_delete_at}
    call('SET',KEYS[1],pack('<ddd',version,now,missing)..string.sub(arg,41)..tail,'PXAT',{expiry})
  elseif stored then
    call('DEL',KEYS[1])
  end
end
return pack('<dddB',version,now,missing,{granted})..table.concat(granted)..tail

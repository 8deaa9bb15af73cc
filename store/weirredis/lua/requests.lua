-- Decides any requests of a bucket or fixed window: backend.Definition.Decide in Lua.
--
-- KEYS[1] is the state, as in take.lua. KEYS[2] is the definition, if there is one: see define.lua.
-- ARGV[1] is version, anchor, period, permits, refill as doubles, then the schedule as it is stored.
-- ARGV[2] is the requests, each: op, flags (1: if previous, 2: block) as bytes; min, max, the receipt's tick and missing as
-- doubles.
{clock}
local call,unpack,pack=redis.call,struct.unpack,struct.pack
local arg,requests=ARGV[1],ARGV[2]
local version,anchor,period,permits,refill=unpack('<ddddd',arg)
{check_definition}
{read_bucket}
local min,max=math.min,math.max
local current=(tick-anchor)/period
local granted,changed,previous={},elapsed<0 and missing>0,0
for i=1,#requests,34 do
  local op,flags,least,most,receipt_tick,receipt_missing=unpack('<BBdddd',requests,i)
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
    n=min(most,2^51-missing)
    if n<0 then n=0 end
    missing=missing+n
  else -- backend.OpRefund, backend.OpReturnBlock
    local still_missing=receipt_missing
    if current>receipt_tick then still_missing=still_missing-(current-receipt_tick)*refill end
    if op==2 then
      n=max(min(most,still_missing,missing-floor),0)
    elseif missing>0 and still_missing==missing then
      n=min(most,missing)
    else
      n=0
    end
    missing=missing-n
    if floor>missing then floor=missing end
  end
  if n>0 then changed=true end
  previous=n
  granted[#granted+1]=pack('<d',n)
end
if changed then
  if missing>0 then
    local delete_at=tick+((missing-1-(missing-1)%refill)/refill+1)*period
    if delete_at>9e18 then delete_at=9e18 end
    local state
    if floor>0 then
      state=pack('<dddB',version,now,missing,string.byte(arg,41)+128)..string.sub(arg,42)..pack('<d',floor)
    else
      state=pack('<ddd',version,now,missing)..string.sub(arg,41)
    end
    call('SET',KEYS[1],state,'PXAT',{expiry})
  elseif stored then
    call('DEL',KEYS[1])
  end
end
return pack('<dddB',version,now,missing,{granted})..table.concat(granted)..pack('<d',floor)

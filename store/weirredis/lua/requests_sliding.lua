-- Decides any requests of a sliding window or calendar: backend.Definition.Decide in Lua.
--
-- KEYS[1] is the state, as in take_sliding.lua. KEYS[2] is the definition, if there is one: see define.lua.
-- ARGV[1] is version, anchor, period, permits, segments as doubles, then the schedule as it is stored.
-- ARGV[2] is the requests, as in requests.lua.
{clock}
local call,unpack,pack=redis.call,struct.unpack,struct.pack
local arg,requests=ARGV[1],ARGV[2]
local version,anchor,period,permits,segments=unpack('<ddddd',arg)
local kept,schedule=segments,string.sub(arg,41)
{check_definition}
local line_time,missing,lines=now-(now-anchor)%period,0,0
local line=(line_time-anchor)/period
{check_window}
local stored=call('GET',KEYS[1])
local taken_at,taken={},{} -- the line and the permits of each segment
if stored then
  local stored_version,written=unpack('<dd',stored)
  if stored_version~=version then
    if stored_version>version then return pack('<dddB',stored_version,now,0,{outdated_definition}) end
    return pack('<dddB',version,now,0,{outdated_state})..stored
  end
  {read_segments}
  for i=pos,#stored,16 do
    local segment,count=unpack('<dd',stored,i)
    if lines<0 then segment=segment+lines end -- the clock has stepped back
    if segment>line-segments then
      taken_at[#taken_at+1]=segment
      taken[#taken+1]=count
      missing=missing+count
    end
  end
end
local min,max=math.min,math.max
local granted,changed,previous={},lines<0 and missing>0,0
for i=1,#requests,34 do
  local op,flags,least,most,receipt_line=unpack('<BBddd',requests,i)
  local n
  if flags%2==1 and previous==-1 then
    n=-1
  elseif op<2 then
    if op==0 then -- backend.OpTake
      local available=permits-missing
      if available<max(least,1) then n=-1 else n=min(most,available) end
    else -- backend.OpCharge
      n=max(min(most,2^51-missing),0)
    end
    if n>0 then
      local last=#taken_at
      if taken_at[last]~=line then
        last=last+1
        taken_at[last],taken[last]=line,0
      end
      taken[last]=taken[last]+n
      missing=missing+n
    end
  elseif op==4 then -- backend.OpGiveBack: of the newest segment while permits are owed, then of the oldest
    n=min(most,missing)
    local left=n
    local function give_back(j,part)
      part=min(part,left,taken[j])
      taken[j]=taken[j]-part
      missing=missing-part
      left=left-part
    end
    for j=#taken,1,-1 do
      if left==0 or missing<=permits then break end
      give_back(j,missing-permits)
    end
    for j=1,#taken do
      if left==0 then break end
      give_back(j,left)
    end
    local kept_at,kept={},{}
    for j=1,#taken do
      if taken[j]>0 then
        kept_at[#kept_at+1]=taken_at[j]
        kept[#kept+1]=taken[j]
      end
    end
    taken_at,taken=kept_at,kept
  else -- backend.OpRefund, backend.OpReturnBlock
    n=0
    for j=1,#taken_at do
      if taken_at[j]==receipt_line then
        n=min(most,taken[j])
        taken[j]=taken[j]-n
        missing=missing-n
        if taken[j]==0 then
          table.remove(taken_at,j)
          table.remove(taken,j)
        end
        break
      end
    end
  end
  if n>0 then changed=true end
  previous=n
  granted[#granted+1]=pack('<d',n)
end
local rest={}
for j=1,#taken_at do rest[j]=pack('<dd',taken_at[j],taken[j]) end
rest=table.concat(rest)
if changed then
  if missing>0 then
    local delete_at=anchor+(taken_at[#taken_at]+kept)*period
    if delete_at>9e18 then delete_at=9e18 end
    call('SET',KEYS[1],pack('<ddd',version,now,missing)..schedule..rest,'PXAT',{expiry})
  elseif stored then
    call('DEL',KEYS[1])
  end
end
return pack('<dddB',version,now,missing,{granted})..table.concat(granted)..rest

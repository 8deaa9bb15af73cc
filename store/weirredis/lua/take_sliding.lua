-- Decides one request of a sliding window or calendar that takes n permits or none. scripts.go has what differs.
--
-- KEYS[1] is the state. KEYS[2] is the definition, if there is one: see define.lua.
-- ARGV[1] is version, anchor, period, permits, segments, n as doubles, then the schedule as it is stored.
--
-- A state is version, time, missing as doubles, then the schedule, then for each segment in which permits were taken its
-- line and its permits as doubles, the oldest first. The new state is also the answer if the permits are granted.
{clock}
local call,unpack,pack=redis.call,struct.unpack,struct.pack
local arg=ARGV[1]
local version,anchor,period,permits,segments,n=unpack('<dddddd',arg)
local kept,schedule=segments,string.sub(arg,49) -- for how many lines the state is kept
{check_definition}
local line_time,missing,lines,taken=now-(now-anchor)%period,0,0,''
local line=(line_time-anchor)/period
{check_window}
local stored=call('GET',KEYS[1])
if stored then
  local stored_version,written,stored_missing=unpack('<ddd',stored)
  if stored_version~=version then
    if stored_version>version then return pack('<dddB',stored_version,now,0,{outdated_definition}) end
    return pack('<dddB',version,now,0,{outdated_state})..stored
  end
  missing=stored_missing
  {read_segments}
  if lines<0 then
    -- The clock has stepped back: the segments move with it.
    local moved={}
    for i=pos,#stored,16 do
      local segment,count=unpack('<dd',stored,i)
      moved[#moved+1]=pack('<dd',segment+lines,count)
    end
    taken=table.concat(moved)
  else
    while pos<#stored do
      local segment,count=unpack('<dd',stored,pos)
      if segment>line-segments then break end
      missing=missing-count
      pos=pos+16
    end
    taken=string.sub(stored,pos)
  end
end
local answer
if missing+n>permits then
  answer=pack('<dddB',version,now,missing,{rejected})..taken
  if lines>=0 then return answer end
else
  missing=missing+n
  local before=0
  if taken~='' then
    local segment,count=unpack('<dd',taken,#taken-15)
    if segment==line then
      before=count
      taken=string.sub(taken,1,-17)
    end
  end
  taken=taken..pack('<dd',line,before+n)
end
local delete_at=line_time+kept*period
if delete_at>9e18 then delete_at=9e18 end
local state=pack('<ddd',version,now,missing)..schedule..taken
call('SET',KEYS[1],state,'PXAT',{expiry})
return answer or state

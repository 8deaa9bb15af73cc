-- Decides one request of a bucket or fixed window that takes n permits or none, as nearly all requests do.
--
-- KEYS[1] is the state. KEYS[2] is the definition, if there is one: see define.lua.
-- ARGV[1] is version, anchor, period, permits, refill, n as doubles, then the schedule as it is stored.
--
-- A state is version, time, missing as doubles, then the schedule, then the refund floor as a double if the first byte of
-- the schedule is above 127. The time is when the state was written, and its tick follows from that. So the new state is
-- also the answer if the permits are granted, and is packed once. encode.go lists the other answers.
{clock}
local call,unpack,pack=redis.call,struct.unpack,struct.pack
local arg=ARGV[1]
local version,anchor,period,permits,refill,n=unpack('<dddddd',arg)
{check_definition}
{read_bucket}
local rejected=missing+n>permits
local answer
if rejected then
  answer=pack('<dddBd',version,now,missing,{rejected},floor)
  -- If the clock has stepped back, the state is written nevertheless. Otherwise nothing would come back to a key that
  -- rejects every request until the clock reaches the old time.
  if elapsed>=0 then return answer end
else
  missing=missing+n
end
local state
if floor>0 then
  state=pack('<dddB',version,now,missing,string.byte(arg,49)+128)..string.sub(arg,50)..pack('<d',floor)
else
  state=pack('<ddd',version,now,missing)..string.sub(arg,49)
end
local delete_at=tick+((missing-1-(missing-1)%refill)/refill+1)*period
if delete_at>9e18 then delete_at=9e18 end
call('SET',KEYS[1],state,'PXAT',{expiry})
return answer or state

-- Decides one request of a bucket or fixed window that takes n permits or none, as nearly all requests do.
--
-- KEYS[1] is the state. KEYS[2] is the definition, if there is one: see define.lua.
-- ARGV[1] is version, anchor, period, permits, refill, n as doubles, then the schedule as it is stored.
--
-- A state is version, time, missing as doubles, then the schedule, then floor, refunded as doubles unless both are 0. The time
-- is when the state was written, and its line follows from that. So the new state is also the answer if the permits are
-- granted, and is packed once. encode.go lists the other answers.
{clock}
local call,unpack,pack=redis.call,struct.unpack,struct.pack
local arg=ARGV[1]
local version,anchor,period,permits,refill,n=unpack('<dddddd',arg)
local plain=#arg-24 -- the length of a state without floor and refunded
{check_definition}
{read_bucket}
local tail=''
if floor>0 or refunded>0 then tail=pack('<dd',floor,refunded) end
local answer
if missing+n>permits then
  answer=pack('<dddB',version,now,missing,{rejected})..tail
  -- If the clock has stepped back, the state is written nevertheless. Otherwise nothing would come back to a key that
  -- rejects every request until the clock reaches the old time.
  if elapsed>=0 then return answer end
else
  missing=missing+n
end
local state=pack('<ddd',version,now,missing)..string.sub(arg,49)..tail
{bucket_delete_at}
call('SET',KEYS[1],state,'PXAT',{expiry})
return answer or state

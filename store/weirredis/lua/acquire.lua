-- Acquires leases. KEYS[1] is a hash: a lease by its ID, and under '' what is known of all of them.
--
-- ARGV[1]: version, limit as doubles. Then for each lease two arguments: the ID; permits, TTL, and whether its caller waits
-- (0 or 1) as doubles.
-- A lease is: permits, fence, end, TTL as doubles. Under '' is, as doubles:
--   version, the last fence, permits in use, the first end, the time of the last change, when the key
--   expires, and until when a caller may wait for the notice of a release.
-- The first end is 0 if there is no lease, and negative if it is only known that no lease ends before: the lease that it was
-- of has been renewed or released since. So leases are looked through only when one may have ended, and not each time.
-- KEYS[2] has the limiter's definition, if there is one. Its version, as a double, comes first.
-- The answer is 'L' and for each lease 1 or 0, the permits in use, and the fence or the time until the first end as doubles;
-- or 'N' and the version of a newer definition as a double.
{clock}
local call,unpack,pack=redis.call,struct.unpack,struct.pack
local k=KEYS[1]
local ver,limit=unpack('<dd',ARGV[1])
local def=call('GETRANGE',KEYS[2],0,7)
if def~='' and unpack('<d',def)>ver then return 'N'..def end
local ids={''}
for i=2,#ARGV,2 do ids[i/2+1]=ARGV[i] end
local got=call('HMGET',k,_G.unpack(ids))
local v0,fence,used,first,last,expiry,wanted=ver,0,0,0,now,0,0
local known=got[1]
if known then v0,fence,used,first,last,expiry,wanted=unpack('<ddddddd',known) end
if v0>ver then return 'N'..pack('<d',v0) end
local changed=known and v0<ver
if first~=0 and math.abs(first)<=now or now<last then
  -- A lease may have ended, or the clock has stepped back; then no lease ends later than its TTL from now.
  local all=call('HGETALL',k)
  used,first,changed=0,0,true
  for i=1,#all,2 do
    if all[i]~='' then
      local p,f,e,ttl=unpack('<dddd',all[i+1])
      if e<=now then
        call('HDEL',k,all[i])
      else
        if e-now>ttl then
          e=now+ttl
          call('HSET',k,all[i],pack('<dddd',p,f,e,ttl))
        end
        used=used+p
        if first==0 or e<first then first=e end
      end
    end
  end
  got=call('HMGET',k,_G.unpack(ids))
end
local write,answers,given,latest={'',''},{},{},0
for i=2,#ARGV,2 do
  local id=ARGV[i]
  local p,ttl,waits=unpack('<ddd',ARGV[i+1])
  local lease=p>0 and (got[i/2+1] or given[id])
  local ok,third=1,0
  if lease then
    -- Sent again, because the answer was lost.
    local p0,f,e0=unpack('<ddd',lease)
    local e=now+ttl
    if p0==used or e<math.abs(first) then first=e elseif e0==first then first=-first end
    if e>latest then latest=e end
    lease=pack('<dddd',p0,f,e,ttl)
    given[id]=lease
    write[#write+1]=id
    write[#write+1]=lease
    third=f
    changed=true
  elseif p==0 and used<limit then
    third=0
  elseif p>0 and used+p<=limit then
    fence=fence+1
    if fence<now then fence=now end
    local e=now+ttl
    used=used+p
    if first==0 or e<math.abs(first) then first=e end
    if e>latest then latest=e end
    lease=pack('<dddd',p,fence,e,ttl)
    given[id]=lease
    write[#write+1]=id
    write[#write+1]=lease
    third=fence
    changed=true
  else
    ok=0
    if first<0 and call('HLEN',k)+(#write-2)/2<=64 then
      -- Few enough to look which one ends first.
      first=0
      local all=call('HGETALL',k)
      for j=1,#all,2 do
        if all[j]~='' then
          local _,_,e=unpack('<ddd',all[j+1])
          if first==0 or e<first then first=e end
        end
      end
      for _,l in pairs(given) do
        local _,_,e=unpack('<ddd',l)
        if first==0 or e<first then first=e end
      end
      changed=true
    end
    if first~=0 then third=math.abs(first)-now end
    if waits==1 and first~=0 then
      -- A waiting caller asks again when the first lease ends, at the latest.
      local need=math.max(now,math.abs(first))+30000000
      if wanted<need then
        wanted=need+30000000
        changed=true
      end
    end
  end
  answers[#answers+1]=pack('<ddd',ok,used,third)
end
if changed then
  local full=latest+3600000000
  if latest>0 and expiry<full-1800000000 then expiry=full else latest=0 end
  write[2]=pack('<ddddddd',ver,fence,used,first,now,expiry,wanted)
  call('HSET',k,_G.unpack(write))
  if latest>0 then call('PEXPIREAT',k,{expiry}) end
end
return 'L'..table.concat(answers)

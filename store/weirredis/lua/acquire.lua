-- Acquires leases of one key.
--
-- KEYS[1] is a hash: each lease by its ID, and a summary under ''. KEYS[2] is the definition, if there is one: see
-- define.lua.
-- ARGV[1] is version, limit as doubles. Then there are two arguments for each lease: the ID; permits, TTL and whether the
-- caller waits (0 or 1) as doubles.
--
-- A lease is permits, fence, end, TTL as doubles.
-- The summary is, as doubles: version, the last fence, permits in use, the first end, the time of the last Acquire that
-- changed something, when the key is deleted, and until when releases send notices.
-- The first end is when the first lease ends, or 0 if there is none. If it is negative, no lease ends before its absolute
-- value, but the lease that it was taken from has been renewed or released since. So the leases are read only when one can
-- have ended, and not at each call.
--
-- The answer is 'L' and, for each lease as doubles, 1 or 0, the permits in use, and the fence or the time until the first
-- end. Or it is 'N' and the version of a newer definition as a double.
{clock}
local call,unpack,pack=redis.call,struct.unpack,struct.pack
local key=KEYS[1]
local version,limit=unpack('<dd',ARGV[1])
local defined=call('GETRANGE',KEYS[2],0,7)
if defined~='' and unpack('<d',defined)>version then return 'N'..defined end
local ids={''}
for i=2,#ARGV,2 do ids[i/2+1]=ARGV[i] end
local stored=call('HMGET',key,_G.unpack(ids))
local stored_version,fence,in_use,first_end,changed_at,stored_delete_at,notify_until=version,0,0,0,now,0,0
local summary=stored[1]
if summary then
  stored_version,fence,in_use,first_end,changed_at,stored_delete_at,notify_until=unpack('<ddddddd',summary)
end
if stored_version>version then return 'N'..pack('<d',stored_version) end
local changed=summary and stored_version<version
if first_end~=0 and math.abs(first_end)<=now or now<changed_at then
  -- A lease can have ended, or the clock has stepped back. After a step back, no lease ends later than its TTL from now.
  local all=call('HGETALL',key)
  in_use,first_end,changed=0,0,true
  for i=1,#all,2 do
    if all[i]~='' then
      local permits,lease_fence,lease_end,ttl=unpack('<dddd',all[i+1])
      if lease_end<=now then
        call('HDEL',key,all[i])
      else
        if lease_end-now>ttl then
          lease_end=now+ttl
          call('HSET',key,all[i],pack('<dddd',permits,lease_fence,lease_end,ttl))
        end
        in_use=in_use+permits
        if first_end==0 or lease_end<first_end then first_end=lease_end end
      end
    end
  end
  stored=call('HMGET',key,_G.unpack(ids))
end
local fields,answers,acquired,last_end={'',''},{},{},0
for i=2,#ARGV,2 do
  local id=ARGV[i]
  local permits,ttl,waits=unpack('<ddd',ARGV[i+1])
  local lease=permits>0 and (stored[i/2+1] or acquired[id])
  local ok,third=1,0
  if lease then
    -- The request was sent again, because the answer was lost.
    local lease_permits,lease_fence,old_end=unpack('<ddd',lease)
    local lease_end=now+ttl
    if lease_permits==in_use or lease_end<math.abs(first_end) then
      first_end=lease_end
    elseif old_end==first_end then
      first_end=-first_end
    end
    if lease_end>last_end then last_end=lease_end end
    lease=pack('<dddd',lease_permits,lease_fence,lease_end,ttl)
    acquired[id]=lease
    fields[#fields+1]=id
    fields[#fields+1]=lease
    third=lease_fence
    changed=true
  elseif permits==0 and in_use<limit then
    third=0
  elseif permits>0 and in_use+permits<=limit then
    fence=fence+1
    if fence<now then fence=now end
    local lease_end=now+ttl
    in_use=in_use+permits
    if first_end==0 or lease_end<math.abs(first_end) then first_end=lease_end end
    if lease_end>last_end then last_end=lease_end end
    lease=pack('<dddd',permits,fence,lease_end,ttl)
    acquired[id]=lease
    fields[#fields+1]=id
    fields[#fields+1]=lease
    third=fence
    changed=true
  else
    ok=0
    if first_end<0 and call('HLEN',key)+(#fields-2)/2<=64 then
      -- There are few leases, so all are read to find the one that ends first.
      first_end=0
      local all=call('HGETALL',key)
      for j=1,#all,2 do
        if all[j]~='' then
          local _,_,lease_end=unpack('<ddd',all[j+1])
          if first_end==0 or lease_end<first_end then first_end=lease_end end
        end
      end
      for _,l in pairs(acquired) do
        local _,_,lease_end=unpack('<ddd',l)
        if first_end==0 or lease_end<first_end then first_end=lease_end end
      end
      changed=true
    end
    if first_end~=0 then third=math.abs(first_end)-now end
    if waits==1 and first_end~=0 then
      -- A waiting caller asks again when the first lease ends, at the latest.
      local needed=math.max(now,math.abs(first_end))+30000000
      if notify_until<needed then
        notify_until=needed+30000000
        changed=true
      end
    end
  end
  answers[#answers+1]=pack('<ddd',ok,in_use,third)
end
if changed then
  -- The key is kept for half an hour to an hour after the last lease.
  local delete_at=last_end+3600000000
  local postpones=last_end>0 and stored_delete_at<delete_at-1800000000
  if not postpones then delete_at=stored_delete_at end
  fields[2]=pack('<ddddddd',version,fence,in_use,first_end,now,delete_at,notify_until)
  call('HSET',key,_G.unpack(fields))
  if postpones then call('PEXPIREAT',key,{expiry}) end
end
return 'L'..table.concat(answers)

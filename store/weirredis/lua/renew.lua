-- Renews leases of one key. KEYS[1] is the hash of acquire.lua. There are two arguments for each lease: the ID; fence (0:
-- any), TTL as doubles. The answer is 1 or 0 for each lease.
{clock}
local call,unpack,pack=redis.call,struct.unpack,struct.pack
local key=KEYS[1]
local ids={''}
for i=1,#ARGV,2 do ids[(i+3)/2]=ARGV[i] end
local stored=call('HMGET',key,_G.unpack(ids))
if not stored[1] then return string.rep('0',#ARGV/2) end
local version,fence,in_use,first_end,changed_at,stored_delete_at,notify_until=unpack('<ddddddd',stored[1])
local fields,answers,last_end={'',''},{},0
for i=1,#ARGV,2 do
  local wanted_fence,ttl=unpack('<dd',ARGV[i+1])
  local lease=stored[(i+3)/2]
  local ok='0'
  if lease then
    local permits,lease_fence,old_end=unpack('<ddd',lease)
    if (wanted_fence==lease_fence or wanted_fence==0) and old_end>now then
      ok='1'
      local lease_end=now+ttl
      fields[#fields+1]=ARGV[i]
      fields[#fields+1]=pack('<dddd',permits,lease_fence,lease_end,ttl)
      if lease_end>last_end then last_end=lease_end end
      if permits==in_use or lease_end<math.abs(first_end) then
        first_end=lease_end
      elseif old_end==first_end then
        first_end=-first_end
      end
    end
  end
  answers[#answers+1]=ok
end
if last_end>0 then
  local delete_at=last_end+3600000000
  local postpones=stored_delete_at<delete_at-1800000000
  if not postpones then delete_at=stored_delete_at end
  fields[2]=pack('<ddddddd',version,fence,in_use,first_end,changed_at,delete_at,notify_until)
  call('HSET',key,_G.unpack(fields))
  if postpones then call('PEXPIREAT',key,{expiry}) end
end
return table.concat(answers)

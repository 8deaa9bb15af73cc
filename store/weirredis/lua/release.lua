-- Releases leases of one key. KEYS[1] is the hash of acquire.lua. ARGV[1] is the channel. Then there are two arguments for
-- each lease: the ID; the fence (0: any) as a double. The answer is 1 or 0 for each lease.
{clock}
local call,unpack,pack=redis.call,struct.unpack,struct.pack
local key=KEYS[1]
local ids={''}
for i=2,#ARGV,2 do ids[i/2+1]=ARGV[i] end
local stored=call('HMGET',key,_G.unpack(ids))
if not stored[1] then return string.rep('0',(#ARGV-1)/2) end
local version,fence,in_use,first_end,changed_at,delete_at,notify_until=unpack('<ddddddd',stored[1])
local changed,answers=false,{}
for i=2,#ARGV,2 do
  local lease=stored[i/2+1]
  local ok='0'
  if lease then
    local permits,lease_fence,lease_end=unpack('<ddd',lease)
    local wanted_fence=unpack('<d',ARGV[i+1])
    -- HDEL returns 0 for an ID that is among the arguments twice.
    if (wanted_fence==lease_fence or wanted_fence==0) and call('HDEL',key,ARGV[i])==1 then
      if lease_end>now then ok='1' end
      changed=true
      in_use=in_use-permits
      if lease_end==first_end then first_end=-first_end end
    end
  end
  answers[#answers+1]=ok
end
if changed then
  if in_use==0 then first_end=0 end
  call('HSET',key,'',pack('<ddddddd',version,fence,in_use,first_end,changed_at,delete_at,notify_until))
  -- Every instance receives a notice; therefore, it is sent only if a waiting caller was rejected lately.
  if notify_until>now then redis.pcall('PUBLISH',ARGV[1],key) end
end
return table.concat(answers)

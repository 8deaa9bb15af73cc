-- Releases leases. ARGV[1]: the channel. Then for each lease two arguments: the ID; its fence as a double, 0: any.
-- The hash is as in acquire.lua.
{clock}
local call,unpack,pack=redis.call,struct.unpack,struct.pack
local k=KEYS[1]
local ids={''}
for i=2,#ARGV,2 do ids[i/2+1]=ARGV[i] end
local got=call('HMGET',k,_G.unpack(ids))
if not got[1] then return string.rep('0',(#ARGV-1)/2) end
local v0,fence,used,first,last,expiry,wanted=unpack('<ddddddd',got[1])
local gone,answers={},{}
for i=2,#ARGV,2 do
  local lease=got[i/2+1]
  local ok='0'
  if lease then
    local p,f0,e=unpack('<ddd',lease)
    local f=unpack('<d',ARGV[i+1])
    if f==f0 or f==0 then
      if call('HDEL',k,ARGV[i])==1 then
        if e>now then ok='1' end
        gone[1]=true
        used=used-p
        if e==first then first=-first end
      end
    end
  end
  answers[#answers+1]=ok
end
if gone[1] then
  if used==0 then first=0 end
  call('HSET',k,'',pack('<ddddddd',v0,fence,used,first,last,expiry,wanted))
  -- Only if a waiting caller was rejected lately, because every instance receives it.
  if wanted>now then redis.pcall('PUBLISH',ARGV[1],k) end
end
return table.concat(answers)

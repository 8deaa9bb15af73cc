-- Renews leases. For each lease two arguments: the ID; fence, TTL as doubles. The hash is as in acquire.lua.
{clock}
local call,unpack,pack=redis.call,struct.unpack,struct.pack
local k=KEYS[1]
local ids={''}
for i=1,#ARGV,2 do ids[(i+3)/2]=ARGV[i] end
local got=call('HMGET',k,_G.unpack(ids))
if not got[1] then return string.rep('0',#ARGV/2) end
local v0,fence,used,first,last,expiry,wanted=unpack('<ddddddd',got[1])
local write,answers,latest={'',''},{},0
for i=1,#ARGV,2 do
  local f,ttl=unpack('<dd',ARGV[i+1])
  local lease=got[(i+3)/2]
  local ok='0'
  if lease then
    local p,f0,e0=unpack('<ddd',lease)
    if (f==f0 or f==0) and e0>now then
      ok='1'
      local e=now+ttl
      write[#write+1]=ARGV[i]
      write[#write+1]=pack('<dddd',p,f,e,ttl)
      if e>latest then latest=e end
      if p==used then
        first=e
      elseif e<math.abs(first) then
        first=e
      elseif e0==first then
        first=-first
      end
    end
  end
  answers[#answers+1]=ok
end
if latest>0 then
  local full=latest+3600000000
  if expiry<full-1800000000 then expiry=full else latest=0 end
  write[2]=pack('<ddddddd',v0,fence,used,first,last,expiry,wanted)
  call('HSET',k,_G.unpack(write))
  if latest>0 then call('PEXPIREAT',k,{expiry}) end
end
return table.concat(answers)

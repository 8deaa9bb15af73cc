-- The time of this server and the definition, if there is one.
{clock}
return struct.pack('<d',now)..(redis.call('GET',KEYS[1]) or '')

-- Returns the time of this server as a double, then the definition KEYS[1], if there is one.
{clock}
return struct.pack('<d',now)..(redis.call('GET',KEYS[1]) or '')

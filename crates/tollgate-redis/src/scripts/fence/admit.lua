-- Nothing but the gate.
return redis.status_reply('OK')

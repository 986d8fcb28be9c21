-- Makes all later tokens larger than $1. Tokens may be drawn meanwhile: by far not as many as are left out here.

select setval('tollgate.tokens', least($1 + 1000000, 9007199254740991))
from tollgate.tokens, (select set_config('synchronous_commit', 'on', true) offset 0) as durably
where last_value <= $1

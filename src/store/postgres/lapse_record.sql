-- A lease is over, and somebody wants to know what became of its call: nobody does. From now on its owner cannot end it.
UPDATE hooksluice.record SET state = 3, token = NULL, lease_until = NULL
WHERE digest = $1 AND route = $2 AND state = 0 AND lease_until < clock_timestamp()
RETURNING 1

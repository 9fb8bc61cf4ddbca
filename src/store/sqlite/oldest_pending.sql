-- From the position found last time on, so that the delivered ones before it are passed over once.
SELECT id FROM dispatch WHERE id >= ?1 AND upstream = ?2 AND state < 2 ORDER BY id LIMIT 1

SELECT due FROM dispatch WHERE upstream = ?1 AND state = 0 AND state < 4 ORDER BY due LIMIT 1

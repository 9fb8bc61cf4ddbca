SELECT upstreams FROM event WHERE position = ?1

DELETE FROM event WHERE position >= ?1 AND position < ?2

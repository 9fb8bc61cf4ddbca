SELECT accepted_at FROM record WHERE state IN (0, 3) AND state = 3 ORDER BY id LIMIT 1

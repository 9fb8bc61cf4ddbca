UPDATE hooksluice.meta SET version = $1 WHERE id = 1

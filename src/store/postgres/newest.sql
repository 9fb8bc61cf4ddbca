SELECT received_at FROM hooksluice.event ORDER BY id DESC LIMIT 1

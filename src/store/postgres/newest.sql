SELECT greatest(
    (SELECT received_at FROM hooksluice.event ORDER BY id DESC LIMIT 1),
    (SELECT accepted_at FROM hooksluice.record ORDER BY accepted_at DESC LIMIT 1))

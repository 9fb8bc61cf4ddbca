SELECT event.position, id, source, received_at, delivery_id, event_type, length(body), of
FROM event LEFT JOIN elsewhere ON elsewhere.position = event.position
WHERE event.position < ?1 ORDER BY event.position DESC LIMIT ?2

INSERT INTO hooksluice.replica AS r (id, seen_at, valid_until)
VALUES ($1, clock_timestamp(), clock_timestamp() + $2 * interval '1 millisecond')
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, valid_until = excluded.valid_until
-- Whether we are the first of the live ones, who looks after the house.
RETURNING NOT EXISTS (SELECT FROM hooksluice.replica o WHERE o.valid_until > clock_timestamp() AND o.id < $1) AS first

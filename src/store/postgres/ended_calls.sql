-- Which of these ends are recorded: whoever did not hear of a commit asks. A released key may have been taken since.
SELECT g.token
FROM unnest($1::bytea[], $2::int[], $3::bigint[], $4::smallint[]) AS g (digest, route, token, state)
LEFT JOIN hooksluice.record r ON r.digest = g.digest AND r.route = g.route
WHERE CASE WHEN g.state IS NULL THEN r.token IS DISTINCT FROM g.token ELSE r.token = g.token AND r.state = g.state END

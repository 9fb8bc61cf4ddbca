-- Records how calls ended, where the record still is theirs: only what runs has an owner. No state: it had no effect, and
-- the key is free again. Returns the tokens of those that were recorded.
WITH given AS (
    SELECT * FROM unnest($1::bytea[], $2::int[], $3::bigint[], $4::smallint[], $5::smallint[], $6::bytea[], $7::bytea[])
        AS g (digest, route, token, state, status, headers, body)
), gone AS (
    DELETE FROM hooksluice.record r USING given g
    WHERE r.digest = g.digest AND r.route = g.route AND r.token = g.token AND r.state = 0 AND g.state IS NULL
    RETURNING r.token
), ended AS (
    UPDATE hooksluice.record r
    SET state = g.state, lease_until = NULL, status = g.status,
        answer = CASE WHEN g.state = 1 THEN nextval('hooksluice.answer_number') END
    FROM given g
    WHERE r.digest = g.digest AND r.route = g.route AND r.token = g.token AND r.state = 0 AND g.state IS NOT NULL
    RETURNING r.token, r.state, r.answer, g.headers, g.body
), answered AS (
    INSERT INTO hooksluice.answer (number, headers, body)
    SELECT answer, headers, body FROM ended WHERE answer IS NOT NULL ORDER BY answer
), counted AS (
    INSERT INTO hooksluice.record_tally AS t (replica, writer, done, unstored)
    SELECT $8, $9, count(*) FILTER (WHERE state = 1), count(*) FILTER (WHERE state = 2) FROM ended
    HAVING count(*) FILTER (WHERE state IN (1, 2)) > 0
    ON CONFLICT (replica, writer) DO UPDATE SET done = t.done + excluded.done, unstored = t.unstored + excluded.unstored
)
SELECT token FROM gone UNION ALL SELECT token FROM ended

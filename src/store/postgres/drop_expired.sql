-- Removes the records of these keys whose time is over, so that the keys can be taken.
WITH old AS MATERIALIZED (
    SELECT r.digest, r.route FROM hooksluice.record r
    JOIN unnest($1::bytea[], $2::int[]) AS g (digest, route) ON r.digest = g.digest AND r.route = g.route
    WHERE r.expires_at <= $3 AND (r.state <> 0 OR r.lease_until < clock_timestamp())
    ORDER BY r.digest, r.route
    FOR UPDATE OF r
), gone AS (
    DELETE FROM hooksluice.record r USING old
    WHERE r.digest = old.digest AND r.route = old.route
        AND r.expires_at <= $3 AND (r.state <> 0 OR r.lease_until < clock_timestamp())
    RETURNING r.state, r.answer
), unanswered AS (
    DELETE FROM hooksluice.answer a USING gone WHERE a.number = gone.answer
), counted AS (
    INSERT INTO hooksluice.record_tally AS t (replica, writer, done, unstored)
    SELECT $4, $5, -count(*) FILTER (WHERE state = 1), -count(*) FILTER (WHERE state = 2) FROM gone
    HAVING count(*) FILTER (WHERE state IN (1, 2)) > 0
    ON CONFLICT (replica, writer) DO UPDATE SET done = t.done + excluded.done, unstored = t.unstored + excluded.unstored
)
SELECT count(*) FROM gone

-- Removes records whose time is over, in a slice of the table's pages, so that no index on it is needed.
WITH old AS MATERIALIZED (
    SELECT ctid AS place FROM hooksluice.record
    WHERE ctid >= ('(' || $1::bigint || ',0)')::tid AND ctid < ('(' || $2::bigint || ',0)')::tid
        AND expires_at <= $3 AND (state <> 0 OR lease_until < clock_timestamp())
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM hooksluice.record r WHERE r.ctid = ANY (ARRAY(SELECT place FROM old))
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

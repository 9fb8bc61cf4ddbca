-- Carries out what a person says of an ambiguous record: $4 is the answer's status, none to release the key. Returns what
-- there was; nothing where there was no record, or one that has expired by $3.
WITH found AS MATERIALIZED (
    SELECT state, state = 3 OR (state = 0 AND lease_until < clock_timestamp()) AS ambiguous
    FROM hooksluice.record
    WHERE digest = $1 AND route = $2
        AND NOT (coalesce(expires_at <= $3, false) AND (state <> 0 OR lease_until < clock_timestamp()))
    FOR UPDATE
), gone AS (
    DELETE FROM hooksluice.record r USING found f
    WHERE f.ambiguous AND $4::smallint IS NULL AND r.digest = $1 AND r.route = $2
), answered AS (
    UPDATE hooksluice.record r SET state = 1, token = NULL, lease_until = NULL, status = $4,
        answer = nextval('hooksluice.answer_number')
    FROM found f
    WHERE f.ambiguous AND $4::smallint IS NOT NULL AND r.digest = $1 AND r.route = $2
    RETURNING r.answer
), kept AS (
    INSERT INTO hooksluice.answer (number, headers, body) SELECT answer, $5, $6 FROM answered
), counted AS (
    INSERT INTO hooksluice.record_tally AS t (replica, writer, done, unstored)
    SELECT $7, $8, count(*), 0 FROM answered HAVING count(*) > 0
    ON CONFLICT (replica, writer) DO UPDATE SET done = t.done + excluded.done
)
SELECT state, ambiguous FROM found

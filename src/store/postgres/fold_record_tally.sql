-- Adds up what replicas that are long gone have counted.
WITH gone AS (
    DELETE FROM hooksluice.record_tally t
    WHERE t.replica <> '00000000-0000-0000-0000-000000000000'
        AND NOT EXISTS (SELECT FROM hooksluice.replica r WHERE r.id = t.replica AND r.seen_at > clock_timestamp() - interval '1 hour')
    RETURNING *
), folded AS (
    INSERT INTO hooksluice.record_tally AS t (replica, writer, done, unstored)
    SELECT '00000000-0000-0000-0000-000000000000', 0, sum(done), sum(unstored) FROM gone HAVING count(*) > 0
    ON CONFLICT (replica, writer) DO UPDATE SET done = t.done + excluded.done, unstored = t.unstored + excluded.unstored
)
SELECT count(*) FROM gone

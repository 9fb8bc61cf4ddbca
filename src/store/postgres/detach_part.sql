-- Takes a partition out; what must be kept of it goes to the partition for the rest.
DO $do$
DECLARE kept uuid[];
BEGIN
    PERFORM pg_catalog.set_config('lock_timeout', '500ms', true);
    IF NOT pg_catalog.pg_try_advisory_xact_lock(7526466502045427571)
        OR NOT EXISTS (SELECT FROM hooksluice.part WHERE id = {part} AND NOT leaving) THEN
        RETURN;
    END IF;
    UPDATE hooksluice.part SET leaving = true WHERE id = {part};
    -- In the order in which everybody else comes to them.
    LOCK TABLE hooksluice.event, hooksluice.dispatch, hooksluice.attempt IN ACCESS EXCLUSIVE MODE;
    ALTER TABLE hooksluice.event DETACH PARTITION hooksluice.event_p{part};
    ALTER TABLE hooksluice.dispatch DETACH PARTITION hooksluice.dispatch_p{part};
    ALTER TABLE hooksluice.attempt DETACH PARTITION hooksluice.attempt_p{part};
    kept := ARRAY(
        SELECT DISTINCT event FROM hooksluice.dispatch_p{part}
        WHERE state IN (0, 1, 3) OR (state = 2 AND clock_started_at > {dead_cutoff}) OR clock_started_at > {cutoff});
    WITH moved AS (DELETE FROM hooksluice.event_p{part} WHERE id = ANY (kept) RETURNING *)
    INSERT INTO hooksluice.event SELECT * FROM moved;
    WITH moved AS (DELETE FROM hooksluice.dispatch_p{part} WHERE event = ANY (kept) RETURNING *)
    INSERT INTO hooksluice.dispatch SELECT * FROM moved;
    WITH moved AS (DELETE FROM hooksluice.attempt_p{part} WHERE event = ANY (kept) RETURNING *)
    INSERT INTO hooksluice.attempt SELECT * FROM moved;
END
$do$

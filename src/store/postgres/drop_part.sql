-- Counts what is left of a partition that was taken out, and drops it.
DO $do$
BEGIN
    PERFORM pg_catalog.set_config('lock_timeout', '500ms', true);
    IF NOT pg_catalog.pg_try_advisory_xact_lock(7526466502045427571)
        OR NOT EXISTS (SELECT FROM hooksluice.part WHERE id = {part} AND leaving) THEN
        RETURN;
    END IF;
    INSERT INTO hooksluice.tally AS t (replica, writer, upstream, made, pruned, pending, leased, dead, held, delivered, discarded)
    SELECT '{replica}', {writer}, upstream, 0, count(*), 0, 0, -count(*) FILTER (WHERE state = 2), 0,
        -count(*) FILTER (WHERE state = 4), -count(*) FILTER (WHERE state = 5)
    FROM hooksluice.dispatch_p{part} GROUP BY upstream
    ON CONFLICT (replica, writer, upstream) DO UPDATE
        SET pruned = t.pruned + excluded.pruned, dead = t.dead + excluded.dead, delivered = t.delivered + excluded.delivered,
            discarded = t.discarded + excluded.discarded;
    DELETE FROM hooksluice.death d USING hooksluice.event_p{part} e WHERE e.id = d.event;
    DELETE FROM hooksluice.reply r USING hooksluice.event_p{part} e WHERE e.id = r.event;
    DROP TABLE hooksluice.event_p{part}, hooksluice.dispatch_p{part}, hooksluice.attempt_p{part};
    DELETE FROM hooksluice.part WHERE id = {part};
END
$do$

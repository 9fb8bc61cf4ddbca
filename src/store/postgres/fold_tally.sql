-- Adds up what replicas that are long gone have counted.
WITH gone AS (
    DELETE FROM hooksluice.tally t
    WHERE t.replica <> '00000000-0000-0000-0000-000000000000'
        AND NOT EXISTS (SELECT FROM hooksluice.replica r WHERE r.id = t.replica AND r.seen_at > clock_timestamp() - interval '1 hour')
    RETURNING *
), folded AS (
    INSERT INTO hooksluice.tally AS t (replica, writer, upstream, made, pruned, pending, leased, dead, held, delivered, discarded)
    SELECT '00000000-0000-0000-0000-000000000000', 0, upstream, sum(made), sum(pruned), sum(pending), sum(leased), sum(dead),
        sum(held), sum(delivered), sum(discarded)
    FROM gone GROUP BY upstream
    ON CONFLICT (replica, writer, upstream) DO UPDATE
        SET made = t.made + excluded.made, pruned = t.pruned + excluded.pruned, pending = t.pending + excluded.pending,
            leased = t.leased + excluded.leased, dead = t.dead + excluded.dead, held = t.held + excluded.held,
            delivered = t.delivered + excluded.delivered, discarded = t.discarded + excluded.discarded
)
SELECT count(*) FROM gone

SELECT
    (SELECT coalesce(sum(done), 0)::bigint FROM hooksluice.record_tally) AS done,
    (SELECT coalesce(sum(unstored), 0)::bigint FROM hooksluice.record_tally) AS unstored,
    count(*) FILTER (WHERE NOT ambiguous) AS running,
    count(*) FILTER (WHERE ambiguous) AS ambiguous,
    min(accepted_at) FILTER (WHERE ambiguous) AS oldest_ambiguous
FROM (SELECT accepted_at, state = 3 OR lease_until < clock_timestamp() AS ambiguous FROM hooksluice.record WHERE state IN (0, 3)) open

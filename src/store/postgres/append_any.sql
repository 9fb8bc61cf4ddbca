-- As append.sql, with digest keys and contents among the keys; contents after all others, so that two batches never wait
-- for each other in a ring.
WITH ruled AS (
    INSERT INTO hooksluice.key (source, kind, key, event, body_mark, received_at)
    SELECT g.source, 0, g.key, g.event, g.body_mark, g.received_at
    FROM unnest($1::uuid[], $2::int[], $3::smallint[], $4::bytea[], $5::bigint[], $6::bigint[])
        AS g (event, source, kind, key, body_mark, received_at)
    WHERE g.kind = 0
    ORDER BY g.source, g.key
    ON CONFLICT (source, kind, key) DO NOTHING
    RETURNING event
), digested AS (
    INSERT INTO hooksluice.key AS k (source, kind, key, event, body_mark, received_at)
    SELECT g.source, 1, g.key, g.event, g.body_mark, g.received_at
    FROM unnest($1::uuid[], $2::int[], $3::smallint[], $4::bytea[], $5::bigint[], $6::bigint[])
        AS g (event, source, kind, key, body_mark, received_at)
    WHERE g.kind = 1
    ORDER BY g.source, g.key
    -- A digest key speaks for its window, judged by the times of receipt, and no longer.
    ON CONFLICT (source, kind, key) DO UPDATE
        SET event = excluded.event, body_mark = excluded.body_mark, received_at = excluded.received_at
        WHERE abs(k.received_at - excluded.received_at) > $19
    RETURNING k.event
), taken AS MATERIALIZED (
    SELECT event FROM ruled UNION ALL SELECT event FROM digested
), seen AS (
    INSERT INTO hooksluice.key AS k (source, kind, key, event, body_mark, received_at)
    SELECT g.source, 2, g.content, g.event, g.body_mark, g.received_at
    FROM unnest($1::uuid[], $2::int[], $7::bytea[], $5::bigint[], $6::bigint[])
        AS g (event, source, content, body_mark, received_at)
    JOIN taken t ON t.event = g.event
    WHERE g.content IS NOT NULL
    ORDER BY g.source, g.content
    ON CONFLICT (source, kind, key) DO UPDATE
        SET event = excluded.event, body_mark = excluded.body_mark, received_at = excluded.received_at
        WHERE abs(k.received_at - excluded.received_at) > $19
    RETURNING k.event
), stored AS (
    INSERT INTO hooksluice.event (id, source, key_kind, received_at, key, body_mark, delivery_id, event_type, head, body)
    SELECT g.event, g.source, g.kind, g.received_at, g.key, g.body_mark, g.delivery_id, g.event_type, g.head, g.body
    FROM unnest($1::uuid[], $2::int[], $3::smallint[], $4::bytea[], $5::bigint[], $6::bigint[], $8::bytea[], $9::bytea[], $10::bytea[], $11::bytea[])
        AS g (event, source, kind, key, body_mark, received_at, delivery_id, event_type, head, body)
    JOIN taken t ON t.event = g.event
), made AS (
    INSERT INTO hooksluice.dispatch (event, upstream, state, due, token, lease_until, attempts, attempts_on_clock, replay,
        clock_started_at, clock_stopped_before, weight)
    SELECT g.event, g.upstream, s.state, g.due,
        CASE WHEN s.state = 1 THEN g.token END,
        CASE WHEN s.state = 1 THEN clock_timestamp() + $20 * interval '1 millisecond' END,
        CASE WHEN s.state = 1 THEN 1 ELSE 0 END,
        0, false, $18, g.stopped_before, g.weight
    FROM unnest($12::uuid[], $13::int[], $14::bigint[], $15::bigint[], $16::bigint[], $17::int[], $21::boolean[])
        AS g (event, upstream, due, token, stopped_before, weight, has_content)
    JOIN taken t ON t.event = g.event
    LEFT JOIN seen ON seen.event = g.event
    CROSS JOIN LATERAL (SELECT CASE
        WHEN g.has_content AND seen.event IS NULL THEN 3
        WHEN g.token IS NOT NULL THEN 1
        ELSE 0 END) AS s (state)
    RETURNING event, upstream, state
), counted AS (
    INSERT INTO hooksluice.tally AS t (replica, writer, upstream, made, pruned, pending, leased, dead, held, delivered, discarded)
    SELECT $22, $23, upstream, count(*), 0, count(*) FILTER (WHERE state = 0), count(*) FILTER (WHERE state = 1), 0,
        count(*) FILTER (WHERE state = 3), 0, 0
    FROM made GROUP BY upstream
    ON CONFLICT (replica, writer, upstream) DO UPDATE
        SET made = t.made + excluded.made, pending = t.pending + excluded.pending, leased = t.leased + excluded.leased,
            held = t.held + excluded.held
)
SELECT event, upstream, state FROM made

-- Partitions for the events of one range of time, unless they are there or somebody else makes them right now. Attached,
-- not created in place: that would lock out everybody.
DO $do$
DECLARE n int;
BEGIN
    PERFORM pg_catalog.set_config('lock_timeout', '500ms', true);
    IF NOT pg_catalog.pg_try_advisory_xact_lock(7526466502045427571)
        OR EXISTS (SELECT FROM hooksluice.part WHERE first < {ended} AND ended > {first}) THEN
        RETURN;
    END IF;
    INSERT INTO hooksluice.part (first, ended) VALUES ({first}, {ended}) RETURNING id INTO n;
    EXECUTE format('CREATE TABLE hooksluice.event_p%s (LIKE hooksluice.event INCLUDING ALL)', n);
    EXECUTE format('CREATE TABLE hooksluice.dispatch_p%s (LIKE hooksluice.dispatch INCLUDING ALL)', n);
    EXECUTE format('CREATE TABLE hooksluice.attempt_p%s (LIKE hooksluice.attempt INCLUDING ALL)', n);
    EXECUTE format('ALTER TABLE hooksluice.event ATTACH PARTITION hooksluice.event_p%s FOR VALUES FROM (%L) TO (%L)', n, '{low}', '{high}');
    EXECUTE format('ALTER TABLE hooksluice.dispatch ATTACH PARTITION hooksluice.dispatch_p%s FOR VALUES FROM (%L) TO (%L)', n, '{low}', '{high}');
    EXECUTE format('ALTER TABLE hooksluice.attempt ATTACH PARTITION hooksluice.attempt_p%s FOR VALUES FROM (%L) TO (%L)', n, '{low}', '{high}');
END
$do$

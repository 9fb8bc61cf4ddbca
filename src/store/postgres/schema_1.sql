-- Everything is in one schema and every name is written with it, so that no search_path matters.
CREATE TABLE hooksluice.meta (
    id      int  PRIMARY KEY CHECK (id = 1),
    -- This store's own name: part of the namespace that speaks for its events elsewhere.
    store   uuid NOT NULL,
    -- New whenever a replica has come to the store, or come back to it.
    era     uuid NOT NULL,
    version int  NOT NULL CHECK (version >= 1)
);
INSERT INTO hooksluice.meta (id, store, era, version) VALUES (1, gen_random_uuid(), gen_random_uuid(), 1);

-- Names, written once so that rows and keys hold a number.
CREATE TABLE hooksluice.source (
    id   int  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE
);
CREATE TABLE hooksluice.upstream (
    id   int  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE
);

-- What decides "the same again" (P2). Not partitioned: Postgres keeps a key unique only within a partition.
-- kind: 0 rule, 1 digest, 2 content. body_mark: the first 8 bytes of the body's SHA-256. Times in milliseconds.
CREATE TABLE hooksluice.key (
    source      int      NOT NULL,
    kind        smallint NOT NULL,
    key         bytea    NOT NULL,
    event       uuid     NOT NULL,
    body_mark   bigint   NOT NULL,
    received_at bigint   NOT NULL,
    PRIMARY KEY (source, kind, key),
    CONSTRAINT key_is_sound CHECK (kind BETWEEN 0 AND 2 AND octet_length(key) = 32)
);

-- Partitioned by id, which begins with the time of receipt, so that forgetting is dropping a partition. What a sender
-- wrote is bytea, also where it reads as text: neither a NUL nor the database's encoding may refuse an event.
CREATE TABLE hooksluice.event (
    id          uuid     NOT NULL,
    source      int      NOT NULL,
    key_kind    smallint NOT NULL,
    received_at bigint   NOT NULL,
    key         bytea    NOT NULL,
    body_mark   bigint   NOT NULL,
    delivery_id bytea,
    event_type  bytea,
    head        bytea    NOT NULL,
    body        bytea    NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT event_is_sound CHECK (key_kind BETWEEN 0 AND 1 AND octet_length(key) = 32)
) PARTITION BY RANGE (id);
-- Compressing costs more than all the rest of an insert.
ALTER TABLE hooksluice.event ALTER COLUMN head SET STORAGE EXTERNAL, ALTER COLUMN body SET STORAGE EXTERNAL;

-- state: 0 pending, 1 leased, 2 dead, 3 held, 4 delivered, 5 discarded.
-- due is kept while leased, so that a dispatch given back stays in its old place. Times in milliseconds by the database's
-- clock. weight: bytes that the event stands for in memory, so that a claim can be bounded without reading it.
-- last_*: the newest finished attempt, so that the usual dispatch (delivered at once) is one row.
-- attempts: granted ones; attempts_on_clock: finished ones since the give-up clocks started.
-- outcome: 0 delivered, 1 refused, 2 not_sent, 3 unknown.
CREATE TABLE hooksluice.dispatch (
    event                uuid        NOT NULL,
    due                  bigint      NOT NULL,
    token                bigint,
    lease_until          timestamptz,
    clock_started_at     bigint      NOT NULL,
    clock_stopped_before bigint      NOT NULL,
    upstream             int         NOT NULL,
    weight               int         NOT NULL,
    attempts             int         NOT NULL,
    attempts_on_clock    int         NOT NULL,
    last_number          int,
    last_took            int,
    last_started_at      bigint,
    state                smallint    NOT NULL,
    last_outcome         smallint,
    last_status          smallint,
    replay               boolean     NOT NULL,
    last_cause           bytea,
    last_excerpt         bytea,
    PRIMARY KEY (event, upstream),
    -- One, since each is made ready anew for each statement.
    CONSTRAINT dispatch_is_sound CHECK (
        state BETWEEN 0 AND 5
        AND (token IS NOT NULL) = (state = 1) AND (lease_until IS NOT NULL) = (state = 1)
        AND attempts_on_clock BETWEEN 0 AND attempts
        AND (last_number IS NULL) = (last_outcome IS NULL)
        AND (last_number IS NULL OR last_number BETWEEN 1 AND attempts AND last_outcome BETWEEN 0 AND 3 AND last_took >= 0)
        AND clock_stopped_before >= 0 AND weight >= 0)
) PARTITION BY RANGE (event);

-- The queue, the leases, and all that is not finished. With the event, so that what is due at the same time goes in its
-- order without being sorted.
CREATE INDEX dispatch_open ON hooksluice.dispatch (upstream, state, due, event) WHERE state < 4;

-- Earlier attempts of dispatches that needed more than one.
CREATE TABLE hooksluice.attempt (
    event      uuid     NOT NULL,
    upstream   int      NOT NULL,
    number     int      NOT NULL CHECK (number >= 1),
    took       int      NOT NULL CHECK (took >= 0),
    started_at bigint   NOT NULL,
    outcome    smallint NOT NULL CHECK (outcome BETWEEN 0 AND 3),
    status     smallint,
    cause      bytea,
    excerpt    bytea,
    PRIMARY KEY (event, upstream, number)
) PARTITION BY RANGE (event);

-- Survivors of dropped partitions, and events with a strange time of receipt.
CREATE TABLE hooksluice.event_rest PARTITION OF hooksluice.event DEFAULT;
CREATE TABLE hooksluice.dispatch_rest PARTITION OF hooksluice.dispatch DEFAULT;
CREATE TABLE hooksluice.attempt_rest PARTITION OF hooksluice.attempt DEFAULT;

-- The other partitions, by their number; bounds are times of receipt in milliseconds.
CREATE TABLE hooksluice.part (
    id      int     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    first   bigint  NOT NULL UNIQUE,
    ended   bigint  NOT NULL UNIQUE,
    -- Taken out already, with what must be kept; to be counted and dropped.
    leaving boolean NOT NULL DEFAULT false,
    CHECK (first < ended)
);

-- What an upstream's lane remembers, for all replicas.
CREATE TABLE hooksluice.lane (
    upstream      int     PRIMARY KEY,
    paused        boolean NOT NULL DEFAULT false,
    -- Counts the orders to pause and to resume.
    orders        bigint  NOT NULL DEFAULT 0 CHECK (orders >= 0),
    stopped_total bigint  NOT NULL DEFAULT 0 CHECK (stopped_total >= 0)
);

-- Processes that have the store open; one whose time is over is gone.
CREATE TABLE hooksluice.replica (
    id          uuid        PRIMARY KEY,
    seen_at     timestamptz NOT NULL,
    valid_until timestamptz NOT NULL
);

-- How much of an upstream's pace a replica has (P7); one whose time is over has nothing.
CREATE TABLE hooksluice.share (
    upstream    int         NOT NULL,
    replica     uuid        NOT NULL,
    units       int         NOT NULL CHECK (units >= 0),
    -- The whole, as this replica's configuration has it.
    whole       int         NOT NULL CHECK (whole >= 1),
    valid_until timestamptz NOT NULL,
    PRIMARY KEY (upstream, replica)
);

-- Changes of the number of dispatches by state, by whoever made them, so that no two transactions change one row: the sum
-- over all writers counts (P8).
CREATE TABLE hooksluice.tally (
    replica   uuid     NOT NULL,
    writer    smallint NOT NULL,
    upstream  int      NOT NULL,
    made      bigint   NOT NULL,
    pruned    bigint   NOT NULL,
    pending   bigint   NOT NULL,
    leased    bigint   NOT NULL,
    dead      bigint   NOT NULL,
    held      bigint   NOT NULL,
    delivered bigint   NOT NULL,
    discarded bigint   NOT NULL,
    PRIMARY KEY (replica, writer, upstream)
) WITH (fillfactor = 30);

-- Events with deaths that others (Redis) have not been told of yet, and how many they were.
CREATE TABLE hooksluice.death (
    event uuid   PRIMARY KEY,
    times bigint NOT NULL CHECK (times >= 1)
);

-- Append-only: no index but the position, so that an accept costs one insert at the right edge. The columns that
-- admission and searches read stand before head and body, so that long rows need no overflow page for them. Blobs of
-- fixed length are checked when they are read: a function call in a CHECK is paid at each accept.
CREATE TABLE event (
    position    INTEGER PRIMARY KEY CHECK (position >= 0),
    id          BLOB    NOT NULL,
    source      INTEGER NOT NULL,
    upstreams   BLOB    NOT NULL,
    key_kind    INTEGER NOT NULL CHECK (key_kind IN (0, 1)),
    key         BLOB    NOT NULL,
    content     BLOB,
    body_mark   BLOB    NOT NULL,
    received_at INTEGER NOT NULL,
    delivery_id TEXT,
    event_type  TEXT,
    head        BLOB    NOT NULL,
    body        BLOB    NOT NULL
) STRICT;

-- id = position * 16384 + upstream: an integer key appends to full pages and compares fast.
-- state: 0 pending, 1 leased, 2 dead, 3 held, 4 delivered, 5 discarded.
-- due is kept while leased, so that a dispatch given back stays in its old place.
-- last_*: the newest finished attempt, so that the usual dispatch (delivered at once) is one row.
-- outcome: 0 delivered, 1 refused, 2 not_sent, 3 unknown. Times in milliseconds.
CREATE TABLE dispatch (
    id                   INTEGER PRIMARY KEY,
    upstream             INTEGER NOT NULL CHECK (upstream = id & 16383),
    state                INTEGER NOT NULL CHECK (state BETWEEN 0 AND 5),
    due                  INTEGER NOT NULL,
    attempts             INTEGER NOT NULL CHECK (attempts >= 0),
    attempts_on_clock    INTEGER NOT NULL CHECK (attempts_on_clock BETWEEN 0 AND attempts),
    token                INTEGER CHECK ((token IS NOT NULL) = (state = 1)),
    replay               INTEGER NOT NULL CHECK (replay IN (0, 1)),
    clock_started_at     INTEGER NOT NULL,
    clock_stopped_before INTEGER NOT NULL CHECK (clock_stopped_before >= 0),
    last_number          INTEGER CHECK (last_number BETWEEN 1 AND attempts),
    last_started_at      INTEGER,
    last_took            INTEGER,
    last_outcome         INTEGER CHECK (last_outcome BETWEEN 0 AND 3),
    last_status          INTEGER,
    last_cause           TEXT,
    last_excerpt         BLOB
) STRICT;

-- The queue, and all that is not finished.
CREATE INDEX dispatch_open ON dispatch (upstream, state, due) WHERE state < 4;

-- Earlier attempts of dispatches that needed more than one.
CREATE TABLE attempt (
    dispatch   INTEGER NOT NULL,
    number     INTEGER NOT NULL CHECK (number >= 1),
    started_at INTEGER NOT NULL,
    took       INTEGER NOT NULL CHECK (took >= 0),
    outcome    INTEGER NOT NULL CHECK (outcome BETWEEN 0 AND 3),
    status     INTEGER,
    cause      TEXT,
    excerpt    BLOB,
    PRIMARY KEY (dispatch, number)
) STRICT, WITHOUT ROWID;

-- Names, written once so that rows and keys hold a number.
CREATE TABLE source (
    id   INTEGER PRIMARY KEY CHECK (id BETWEEN 1 AND 1073741823),
    name TEXT    NOT NULL UNIQUE
) STRICT;
CREATE TABLE upstream (
    id   INTEGER PRIMARY KEY CHECK (id BETWEEN 1 AND 16383),
    name TEXT    NOT NULL UNIQUE
) STRICT;

-- A page of keys of a sealed partition: id = partition * 65536 + page. See keys.rs.
CREATE TABLE key_page (
    id      INTEGER PRIMARY KEY,
    entries BLOB NOT NULL
) STRICT;

-- A sealed partition; a row here says that all its pages are there.
CREATE TABLE key_partition (
    partition    INTEGER PRIMARY KEY CHECK (partition >= 0),
    newest       INTEGER NOT NULL,
    keys         INTEGER NOT NULL,
    pages        INTEGER NOT NULL CHECK (pages BETWEEN 1 AND 65536),
    filter       BLOB    NOT NULL
) STRICT;

-- Keys of a partition that is not sealed yet and whose event row is not there to be read: carried over from a dropped
-- partition, or pruned.
CREATE TABLE key_extra (
    rowid     INTEGER PRIMARY KEY,
    partition INTEGER NOT NULL,
    entries   BLOB    NOT NULL
) STRICT;

-- What became of an upstream's dispatches, as of meta.tally_position. Delivered is what is left:
-- made - pruned - discarded - (pending + leased + dead + held).
CREATE TABLE tally (
    upstream  INTEGER PRIMARY KEY,
    made      INTEGER NOT NULL,
    pruned    INTEGER NOT NULL,
    discarded INTEGER NOT NULL
) STRICT;

CREATE TABLE lane (
    upstream      INTEGER PRIMARY KEY,
    paused        INTEGER NOT NULL CHECK (paused IN (0, 1)),
    stopped_total INTEGER NOT NULL CHECK (stopped_total >= 0)
) STRICT;

CREATE TABLE meta (
    id             INTEGER PRIMARY KEY CHECK (id = 1),
    reserved_end   INTEGER NOT NULL CHECK (reserved_end >= 0),
    tally_position INTEGER NOT NULL,
    -- Keys of positions below are in sealed (or dropped) partitions.
    key_floor      INTEGER NOT NULL,
    next_partition INTEGER NOT NULL CHECK (next_partition >= 0)
) STRICT;

INSERT INTO meta (id, reserved_end, tally_position, key_floor, next_partition) VALUES (1, 0, 0, 0, 0);

CREATE TABLE route (
    id   INTEGER PRIMARY KEY CHECK (id BETWEEN 1 AND 1073741823),
    name TEXT    NOT NULL UNIQUE
) STRICT;

-- What is known of the keys of idempotent calls, in the order in which they began, so that a row is written at the right
-- edge and its end finds it there. state: 0 running, 1 done, 2 unstored, 3 ambiguous. token: of whoever makes the call.
-- Times in milliseconds. Blobs of fixed length are checked when they are read.
CREATE TABLE record (
    id          INTEGER PRIMARY KEY,
    state       INTEGER NOT NULL CHECK (state BETWEEN 0 AND 3),
    token       INTEGER CHECK ((token IS NOT NULL) = (state = 0)),
    status      INTEGER CHECK ((status IS NOT NULL) = (state = 1)),
    accepted_at INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    route       INTEGER NOT NULL,
    digest      BLOB    NOT NULL,
    fingerprint BLOB    NOT NULL,
    client_key  TEXT    NOT NULL
) STRICT;

-- One call for a key.
CREATE UNIQUE INDEX record_key ON record (digest, route);

-- What is to be removed next; with the state, so that opening counts without reading the rows.
CREATE INDEX record_expiry ON record (expires_at, state);

-- What runs, and what waits for a person.
CREATE INDEX record_open ON record (state) WHERE state IN (0, 3);

-- The answers of done ones, by the record's id. Apart, so that long ones do not spread the records over many pages.
CREATE TABLE answer (
    record  INTEGER PRIMARY KEY,
    headers BLOB NOT NULL,
    body    BLOB NOT NULL
) STRICT;

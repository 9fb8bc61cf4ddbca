-- Copies of events that are durable in another replica's store, kept without dispatches unless a person replays them.
-- admitted_at: when that was decided, in milliseconds.
CREATE TABLE elsewhere (
    position    INTEGER PRIMARY KEY CHECK (position >= 0),
    of          BLOB    NOT NULL,
    dead        INTEGER NOT NULL CHECK (dead IN (0, 1)),
    admitted_at INTEGER NOT NULL
) STRICT;

-- Events of which a dispatch died and Redis has not been told; a row holds all that it is told. times: deaths since the
-- row was written, so that one which came during the telling is told again.
CREATE TABLE death (
    position INTEGER PRIMARY KEY,
    source   INTEGER NOT NULL,
    key_kind INTEGER NOT NULL CHECK (key_kind IN (0, 1)),
    key      BLOB    NOT NULL,
    event    BLOB    NOT NULL,
    times    INTEGER NOT NULL CHECK (times >= 1)
) STRICT;

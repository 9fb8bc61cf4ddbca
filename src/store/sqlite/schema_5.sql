-- Names under which Redis was told of this store's events (`[dedupe.redis] namespace`). retired: this is a copy, and Redis
-- may have been told since of events that are not here.
CREATE TABLE namespace (
    name    TEXT    PRIMARY KEY,
    retired INTEGER NOT NULL CHECK (retired IN (0, 1))
) STRICT, WITHOUT ROWID;

-- When this copy of another store was taken, in milliseconds.
ALTER TABLE meta ADD COLUMN copied_at INTEGER;

-- What an upstream answered to a dispatch whose sender waited for it: every duplicate is given the same. headers: see
-- headers.rs. No body: it was too long to be kept.
CREATE TABLE reply (
    dispatch INTEGER PRIMARY KEY,
    status   INTEGER NOT NULL CHECK (status BETWEEN 200 AND 399),
    headers  BLOB    NOT NULL,
    body     BLOB
) STRICT;

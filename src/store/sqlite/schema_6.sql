-- When each secret of a source last vouched for a request. mark: stands for the secret. others: requests that other secrets
-- of the source have vouched for since then, or since it was first noted. seen_at: when it was last noted. Times in
-- milliseconds.
CREATE TABLE secret (
    source    TEXT    NOT NULL,
    mark      INTEGER NOT NULL,
    since     INTEGER NOT NULL,
    last_used INTEGER,
    others    INTEGER NOT NULL,
    seen_at   INTEGER NOT NULL,
    PRIMARY KEY (source, mark)
) STRICT, WITHOUT ROWID;

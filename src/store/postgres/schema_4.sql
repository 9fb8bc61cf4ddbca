-- When each secret of a source last vouched for a request. mark: stands for the secret. others: requests that other secrets
-- of the source have vouched for since then, or since it was first noted. seen_at: when it was last noted. Times in
-- milliseconds.
CREATE TABLE hooksluice.secret (
    source    text   NOT NULL,
    mark      bigint NOT NULL,
    since     bigint NOT NULL,
    last_used bigint,
    others    bigint NOT NULL,
    seen_at   bigint NOT NULL,
    PRIMARY KEY (source, mark)
);

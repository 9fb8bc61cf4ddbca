CREATE TABLE hooksluice.route (
    id   int  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE
);

-- What is known of the keys of idempotent calls. state: 0 running, 1 done, 2 unstored, 3 ambiguous; one that runs and whose
-- lease is over is ambiguous. token: of the last who made the call, so that whoever did not hear of a commit finds it; none
-- where a lapse ended it. Times in milliseconds by the database's clock. Room in each page, so that a renewal touches no
-- index.
CREATE TABLE hooksluice.record (
    accepted_at bigint      NOT NULL,
    expires_at  bigint      NOT NULL,
    token       bigint,
    lease_until timestamptz,
    route       int         NOT NULL,
    state       smallint    NOT NULL,
    status      smallint,
    digest      bytea       NOT NULL,
    fingerprint bytea       NOT NULL,
    client_key  bytea       NOT NULL,
    answer      bigint,
    PRIMARY KEY (digest, route),
    CONSTRAINT record_is_sound CHECK (
        state BETWEEN 0 AND 3
        AND (lease_until IS NOT NULL) = (state = 0) AND (state <> 0 OR token IS NOT NULL)
        AND (status IS NOT NULL) = (state = 1) AND (answer IS NOT NULL) = (state = 1)
        AND octet_length(digest) = 32 AND octet_length(fingerprint) = 32 AND octet_length(client_key) <= 255)
) WITH (fillfactor = 80);

-- The answers of done ones, in the order in which they came. Apart, so that records stay small: the server moves out of a row
-- only what makes it longer than 2 KB. Not compressed: it costs more than all the rest.
CREATE SEQUENCE hooksluice.answer_number;
CREATE TABLE hooksluice.answer (
    number  bigint PRIMARY KEY,
    headers bytea  NOT NULL,
    body    bytea  NOT NULL
);
ALTER TABLE hooksluice.answer ALTER COLUMN headers SET STORAGE EXTERNAL, ALTER COLUMN body SET STORAGE EXTERNAL;

-- For people, who look at the newest, and at what waits for them.
CREATE INDEX record_listed ON hooksluice.record (accepted_at);
CREATE INDEX record_open ON hooksluice.record (accepted_at) WHERE state IN (0, 3);

-- Changes of the number of records that are finished, by whoever made them, as in the tally of dispatches. What is open is
-- counted by its index.
CREATE TABLE hooksluice.record_tally (
    replica  uuid     NOT NULL,
    writer   smallint NOT NULL,
    done     bigint   NOT NULL,
    unstored bigint   NOT NULL,
    PRIMARY KEY (replica, writer)
) WITH (fillfactor = 30);

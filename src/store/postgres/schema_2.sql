-- What an upstream answered to a dispatch whose sender waited for it: every duplicate is given the same. headers: see
-- headers.rs. No body: it was too long to be kept. Goes with its event, as rows of death do.
CREATE TABLE hooksluice.reply (
    event    uuid     NOT NULL,
    upstream int      NOT NULL,
    status   smallint NOT NULL CHECK (status BETWEEN 200 AND 399),
    headers  bytea    NOT NULL,
    body     bytea,
    PRIMARY KEY (event, upstream)
);
ALTER TABLE hooksluice.reply ALTER COLUMN headers SET STORAGE EXTERNAL, ALTER COLUMN body SET STORAGE EXTERNAL;

-- What a look wants to know besides check.sql.
SELECT
    current_setting('synchronous_commit') AS synchronous_commit,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now

WITH shares AS (
    DELETE FROM hooksluice.share WHERE valid_until < clock_timestamp() - interval '1 minute'
)
DELETE FROM hooksluice.replica WHERE valid_until < clock_timestamp() - interval '1 day'

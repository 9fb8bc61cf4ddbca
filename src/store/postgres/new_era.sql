-- The store may have been put back to an earlier state while nobody was connected: what was said of it before does not hold.
UPDATE hooksluice.meta SET era = gen_random_uuid() WHERE id = 1

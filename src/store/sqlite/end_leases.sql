-- Opening ends every earlier lease; the attempt number stays used.
UPDATE dispatch SET state = 0, token = NULL WHERE state = 1 AND state < 4 AND upstream = ?1

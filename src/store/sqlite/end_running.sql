UPDATE record SET state = 3, token = NULL WHERE state IN (0, 3) AND state = 0

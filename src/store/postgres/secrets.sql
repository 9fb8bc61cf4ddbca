SELECT source, mark, since, last_used, others FROM hooksluice.secret

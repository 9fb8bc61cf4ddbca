SELECT source, mark, since, last_used, others FROM secret

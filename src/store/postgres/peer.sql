SELECT host(pg_catalog.inet_client_addr()), pg_catalog.inet_client_port()

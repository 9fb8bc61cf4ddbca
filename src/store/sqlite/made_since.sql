SELECT upstream, count(*) FROM dispatch WHERE id >= ?1 GROUP BY upstream

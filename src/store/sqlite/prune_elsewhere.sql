DELETE FROM elsewhere WHERE position >= ?1 AND position < ?2

SELECT of FROM elsewhere WHERE position = ?1

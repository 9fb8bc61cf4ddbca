DELETE FROM hooksluice.share WHERE replica = $1

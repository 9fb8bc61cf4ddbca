DELETE FROM hooksluice.replica WHERE id = $1

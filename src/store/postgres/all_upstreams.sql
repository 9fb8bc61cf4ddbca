SELECT name, id FROM hooksluice.upstream

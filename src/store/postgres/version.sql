SELECT version FROM hooksluice.meta WHERE id = 1

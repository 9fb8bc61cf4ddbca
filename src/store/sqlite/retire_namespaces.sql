UPDATE namespace SET retired = 1 WHERE retired = 0

SELECT first, ended FROM hooksluice.part WHERE ended > $1

"""Runs the checks of every file beside this one, or those of the files that are named, and counts them."""

import sys
import traceback

import container
import kubernetes
import monitoring
import proxies
import shells
import systemd
from tools import CHECKS

ROOMS = [container, systemd, kubernetes, monitoring, shells, proxies]

passed = failed = 0
for check in CHECKS:
    if len(sys.argv) > 2 and check.__module__ not in sys.argv[2:]:
        continue
    print(f"\n-- {check.__doc__}", flush=True)
    try:
        check()
        passed += 1
    except Exception:
        failed += 1
        traceback.print_exc(file=sys.stdout)
        print(f"FAIL {check.__doc__}")
print(f"\n{passed} passed, {failed} failed")
sys.exit(failed != 0)

"""A contestant for tests: `fake.py MS MODE` speaks like `tilewright bench --interactive` and claims runs of MS milliseconds.

MODE: good, refuses (cannot prepare), dies (at its first turn), hangs (at its first turn), wrong (its outputs are).
"""
import json
import os
import signal
import sys
import time

ms, mode = float(sys.argv[1]), sys.argv[2]
answer = lambda value: print(json.dumps(value), flush=True)
if mode == "refuses":
    answer({"error": "RuntimeError: this model is not for me"})
    sys.exit(1)
answer({"version": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [], "prepare_ms": 2 * ms, "first_ms": ms})
for line in sys.stdin:
    if mode == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if mode == "hangs":
        time.sleep(60)
    answer([ms, ms])

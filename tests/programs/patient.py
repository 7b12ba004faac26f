"""Waits until it is told to stop; says what it is. With --stubborn it does not listen to SIGTERM."""

import os
import signal
import sys

if "--stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: (print("stopping", flush=True), os._exit(143)))
print(f"attempt {os.environ['CALLSHEET_ATTEMPT']} pid {os.getpid()}", flush=True)
while True:
    signal.pause()

"""Leaves a child behind that has its own session and no parent, as daemons do; writes its process id to a file.

With --heavy the child has so much memory that its end takes a while.
"""

import os
import sys
import time

path = sys.argv[1]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        held = b"x" * (500 << 20 if "--heavy" in sys.argv else 0)
        with open(path + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(path + ".new", path)
        while True:
            time.sleep(60)
    os._exit(0)
os.wait()
if "--stay" in sys.argv:
    while True:
        time.sleep(60)
while not os.path.exists(path):
    time.sleep(0.01)

"""Leaves a child behind that has its own session and no parent, as daemons do; writes its process id to a file."""

import os
import sys
import time

path = sys.argv[1]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
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

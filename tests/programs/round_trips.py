"""Measures round trips to an echo server and writes their 99th percentiles, in microseconds, to a file as JSON.

Time is cut into windows by a clock that all processes of the machine share; `flood.py --every` floods in every second
one. So both kinds of window see the same machine, and the percentile is taken window by window.
"""

import json
import os
import socket
import sys
import time

path, seconds, window = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
host, port = os.environ["CALLSHEET_ECHO_ADDR"].rsplit(":", 1)
while True:
    try:
        connection = socket.create_connection((host, int(port)))
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
windows: dict[int, list[float]] = {}
end = time.monotonic() + seconds
while (now := time.monotonic()) < end:
    begun = time.perf_counter()
    connection.sendall(b"ping\n")
    connection.recv(100)
    took = time.perf_counter() - begun
    if now % window > window / 10:  # what the window before left in the pipes is out by then
        windows.setdefault(int(now // window), []).append(took)
    time.sleep(0.0005)
found: dict[str, list[float]] = {"quiet": [], "loud": []}
for number, times in windows.items():
    times.sort()
    found["loud" if number % 2 else "quiet"].append(times[int(len(times) * 0.99)] * 1e6)
with open(path, "w") as file:
    json.dump(found, file)

"""Measures round trips to an echo server for a while and writes their 99th percentile, in microseconds, to a file."""

import os
import socket
import sys
import time

path, seconds = sys.argv[1], float(sys.argv[2])
host, port = os.environ["CALLSHEET_ECHO_ADDR"].rsplit(":", 1)
while True:
    try:
        connection = socket.create_connection((host, int(port)))
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
times = []
end = time.perf_counter() + seconds
while time.perf_counter() < end:
    begun = time.perf_counter()
    connection.sendall(b"ping\n")
    connection.recv(100)
    times.append(time.perf_counter() - begun)
    time.sleep(0.0005)
times.sort()
with open(path, "w") as file:
    file.write(str(times[int(len(times) * 0.99)] * 1e6))

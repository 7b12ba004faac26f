"""Writes numbered lines as fast as it can.

`flood.py BYTES` so many bytes, `flood.py` for ever, `flood.py --every SECONDS` for ever in every second window of so
many seconds.
"""

import sys
import time

line = b"x" * 90
total, window = 1 << 62, 0.0
if sys.argv[1:2] == ["--every"]:
    window = float(sys.argv[2])
elif sys.argv[1:]:
    total = int(sys.argv[1])
written = number = 0
while written < total:
    if window and (now := time.monotonic()) // window % 2 == 0:
        time.sleep(window - now % window)
    chunk = b"".join(b"%09d %s\n" % (number + i, line) for i in range(500))
    number += 500
    written += len(chunk)
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()

"""Writes numbered lines as fast as it can: `flood.py BYTES` so many bytes, or for ever without a number."""

import sys

line = b"x" * 90
total = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 62
written = number = 0
while written < total:
    chunk = b"".join(b"%09d %s\n" % (number + i, line) for i in range(500))
    number += 500
    written += len(chunk)
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()

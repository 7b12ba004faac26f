"""Reverb: whole rollouts inserted by writers and sampled by a reader that copies them into a batch.

`reverb_table.py PAYLOAD WRITERS SECONDS queue|prioritized`. Prints the rates of inserts and of samples.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["GRPC_VERBOSITY"] = "ERROR"

import reverb
from payloads import Batch, report, rollout, size


def _write(port: int, payload: str) -> None:
    client, item = reverb.Client(f"localhost:{port}"), rollout(payload)
    while True:
        client.insert(item, {"table": 1.0})


def _serve(kind: str, told: Connection) -> None:
    if kind == "queue":
        table = reverb.Table.queue("table", 16)
    else:
        table = reverb.Table(
            "table",
            reverb.selectors.Prioritized(0.6),
            reverb.selectors.Fifo(),
            1000,
            reverb.rate_limiters.MinSize(1),
        )
    server = reverb.Server([table])
    told.send(server.port)
    server.wait()


def main(payload: str, writers: int, seconds: float, kind: str) -> None:
    context = multiprocessing.get_context("spawn")
    # A process of its own: within one process Reverb hands items over without its transport.
    heard, told = context.Pipe()
    children = [context.Process(target=_serve, args=(kind, told), daemon=True)]
    children[0].start()
    port = heard.recv()
    children += [context.Process(target=_write, args=(port, payload), daemon=True) for _ in range(writers)]
    for child in children[1:]:
        child.start()
    client = reverb.Client(f"localhost:{port}")
    samples = client.sample("table", num_samples=10**9, emit_timesteps=False)
    names = sorted(rollout(payload))  # as Reverb flattens a dictionary
    batch = Batch(payload)

    def take() -> None:
        data = next(samples).data
        values = data.values() if isinstance(data, dict) else data
        batch.put({name: value[0] for name, value in zip(names, values, strict=True)})

    def inserted() -> int:
        return client.server_info()["table"].rate_limiter_info.insert_stats.completed

    for _ in range(50):
        take()
    first, count, cpu, begun = inserted(), 0, time.process_time(), time.perf_counter()
    while time.perf_counter() - begun < seconds:
        take()
        count += 1
    took = time.perf_counter() - begun
    gigabytes = count * size(payload) / 1e9
    report(
        f"Reverb, {kind}",
        payload=payload,
        writers=writers,
        items_per_s=count / took,
        mb_per_s=gigabytes * 1000 / took,
        inserts_per_s=(inserted() - first) / took,
        reader_cpu_s_per_gb=(time.process_time() - cpu) / gigabytes,
    )
    for child in children:
        child.kill()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])

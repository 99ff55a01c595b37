"""Confirms and syncs: latency and throughput against how many share a sync.

Holds publish and wait against a pwrite and an fdatasync of as many bytes, in the same rounds.
"""

from __future__ import annotations

import time
from pathlib import Path

from . import floor
from .report import Plot
from .runs import Case, Options, Result, Sample
from .stores import PERSISTENT, QUEUE, opened

TITLE = "Confirms against the disk's own sync"
BODY_BYTES = 100
GROUPS = "messages outstanding for each wait"
_GROUP_SIZES = (1, 10, 100, 1000, 10_000)

PLOTS = [
    Plot("Confirm latency: publish a group, wait for it", "group", "p50_us", group=GROUPS,
         log_x=True, log_y=True, x_label="messages outstanding for each wait"),
]  # fmt: skip


def cases(options: Options) -> list[Case]:
    """All sweeps, the floors in front of each."""
    return groups(options)


def groups(options: Options) -> list[Case]:
    """Publish so many, wait for their confirms, and again."""
    found = [floor.sync(BODY_BYTES, options.count(500, 20), GROUPS)]
    for group in options.sweep(*_GROUP_SIZES):
        waits = options.count(max(10, 500 // group), 3)

        def run(directory: Path, group: int = group, waits: int = waits) -> Sample:
            return publish_and_wait(directory, group, waits)

        parameters = {"group": group}
        found.append(Case("confirms", run, parameters, floor.sync_name(BODY_BYTES), GROUPS))
    return found


def publish_and_wait(directory: Path, group: int, waits: int) -> Sample:
    """One thread, waits times: group messages and the wait for all of them."""
    body = b"x" * BODY_BYTES
    latencies = []
    with opened(directory) as channel:
        start = time.perf_counter()
        for _ in range(waits):
            begin = time.perf_counter_ns()
            for _ in range(group):
                channel.basic_publish("", QUEUE, body, PERSISTENT)
            channel.wait_for_confirms(60)
            latencies.append((time.perf_counter_ns() - begin) / 1000)
        seconds = time.perf_counter() - start
    messages = group * waits
    return Sample(seconds, messages, messages * BODY_BYTES, latencies)


def notes(results: list[Result]) -> list[str]:
    """What the numbers say."""
    return ["Latency is from the first publish of a group to the confirm of its last message."]

"""Confirms and syncs: latency and throughput of durable publishing, whatever is turned.

How many messages share a wait, threads, sizes of bodies, commit_delay_us, embed_below, transactions
beside confirms.  Held against pwrite and fdatasync of as many bytes, in the same rounds.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

import pyqstore

from . import floor
from .loads import PERSISTENT, QUEUE, confirm, once_confirmed, publish_rows, together
from .plots import Plot
from .runs import Case, Options, Result, Sample, repeated
from .stores import opened, opened_store, prepared

TITLE = "Confirms against the disk's own sync"
BODY_BYTES = 100
GROUPS = "Messages outstanding for each wait, bodies of 100 B"
WAYS = "Ways to be sure of a group, bodies of 100 B"
THREADS = "Threads that publish and wait, bodies of 100 B"
SIZES = "Sizes of bodies: publish and wait"
DELAYS = "commit_delay_us: publish and wait, bodies of 100 B"
EMBEDS = "embed_below: publish 16 MiB, wait once"

_GROUP_SIZES = (1, 10, 100, 1000, 10_000)
_WAY_SIZES = (1, 10, 100, 1000)
_THREADS = (1, 2, 4, 8, 16)
_BODY_SIZES = (10, 100, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576)
_DELAYS = (0, 50, 200, 1000)
_DELAY_THREADS = (1, 8)
_EMBEDS = (0, 1, 1024, 4096, 16_384)
_EMBED_BODIES = (2048, 8192)
_WAITS = 500
_WAYS_MESSAGES = 20_000
_SIZED_BYTES_MOST = 24 << 20
_EMBED_BYTES = 16 << 20

_OUTSTANDING = "messages outstanding for each wait"
PLOTS = [
    Plot("Publish a group, wait for its confirms: p50", "group", "p50_us", group=GROUPS,
         log_x=True, log_y=True, x_label=_OUTSTANDING),
    Plot("Ways to be sure of a group: throughput", "group", "messages_per_s", group=WAYS,
         log_x=True, log_y=True, x_label="messages of a group"),
    Plot("Threads that publish and wait: throughput", "threads", "messages_per_s",
         group=THREADS, log_x=True),
    Plot("Threads that publish and wait: p50", "threads", "p50_us", group=THREADS, log_x=True),
    Plot("Publish and wait: p50 over the size of the body", "body_bytes", "p50_us", group=SIZES,
         log_x=True, log_y=True, x_label="body"),
    Plot("Publish and wait: p99 over the size of the body", "body_bytes", "p99_us", group=SIZES,
         log_x=True, log_y=True, x_label="body"),
    Plot("A delay before each commit: throughput", "delay_us", "messages_per_s", "threads",
         group=DELAYS, even=True, x_label="commit_delay_us"),
    Plot("Where bodies go: throughput over embed_below", "embed_below_bytes", "bytes_per_s",
         group=EMBEDS, even=True, x_label="embed_below"),
]  # fmt: skip


def cases(options: Options) -> list[Case]:
    """All sweeps, the floors in front of each."""
    return [
        *groups(options),
        *ways(options),
        *threads(options),
        *sizes(options),
        *delays(options),
        *embeds(options),
    ]


def groups(options: Options) -> list[Case]:
    """Publish so many, wait for their confirms, and again."""
    found = []
    for group in options.sweep(*_GROUP_SIZES):
        times = options.count(max(20, _WAITS // group), 2)
        floor_case = floor.sync(group * BODY_BYTES, options.count(200, 10), GROUPS)
        run = partial(_run_confirms, once_confirmed, group, BODY_BYTES, times)
        case = Case("confirms", run, {"group": group}, floor_case.name, GROUPS)
        found += [floor_case, case]
    return found


def ways(options: Options) -> list[Case]:
    """The same group, made sure of message by message, at once, or in a transaction."""
    total = options.count(_WAYS_MESSAGES, 20)
    found = [floor.stream(max(total * BODY_BYTES, 4 * floor.MIB), group=WAYS)]
    each_way: dict[str, tuple[Callable[..., Sample], Way]] = {
        "a wait for each message": (_run_confirms, each_confirmed),
        "one wait": (_run_confirms, once_confirmed),
        "a transaction": (_run_transactions, committed),
        "a transaction of one batch": (_run_transactions, batch_committed),
    }
    for name, (run, way) in each_way.items():
        for group in options.sweep(*_WAY_SIZES):
            syncs = group if way is each_confirmed else 1  # of a group
            times = min(total // group, options.count(_WAITS) // syncs)
            if times == 0:  # it would take long, and tell nothing new
                continue
            once = partial(run, way, group, BODY_BYTES, times)
            found.append(Case(name, once, {"group": group}, floor.STREAM, WAYS))
    return found


def threads(options: Options) -> list[Case]:
    """Each with a channel of its own: one message, its confirm, the next."""
    found = [floor.sync(BODY_BYTES, options.count(_WAITS, 10), THREADS)]
    for count in options.sweep(*_THREADS):
        run = partial(_run_threads, count, options.count(_WAITS, 5), 0)
        parameters = {"threads": count}
        found.append(Case("publish and wait", run, parameters, found[0].name, THREADS))
    return found


def sizes(options: Options) -> list[Case]:
    """One message, its confirm, the next, from the smallest bodies to large ones."""
    found = []
    for body_bytes in options.sweep(*_BODY_SIZES):
        times = min(options.count(_WAITS, 3), max(3, _SIZED_BYTES_MOST // body_bytes))
        floor_case = floor.sync(body_bytes, times, SIZES)
        run = partial(_run_confirms, once_confirmed, 1, body_bytes, times)
        parameters = {"body_bytes": body_bytes}
        case = Case("publish and wait", run, parameters, floor_case.name, SIZES)
        found += [floor_case, case]
    return found


def delays(options: Options) -> list[Case]:
    """A commit that waits a little takes more messages along."""
    found = [floor.sync(BODY_BYTES, options.count(_WAITS, 10), DELAYS)]
    for count, delay in itertools.product(_DELAY_THREADS, options.sweep(*_DELAYS)):
        run = partial(_run_threads, count, options.count(_WAITS, 5), delay)
        parameters = {"threads": count, "delay_us": delay}
        found.append(Case("publish and wait", run, parameters, found[0].name, DELAYS))
    return found


def embeds(options: Options) -> list[Case]:
    """What embed_below sends to the journal, and what to the message store."""
    total_bytes = options.count(_EMBED_BYTES, 4 * max(_EMBED_BODIES))
    found = [floor.stream(max(total_bytes, floor.MIB), group=EMBEDS)]
    for body_bytes, embed_below in itertools.product(_EMBED_BODIES, options.sweep(*_EMBEDS)):
        run = partial(_run_embed, body_bytes, embed_below, total_bytes // body_bytes)
        name = f"bodies of {floor.size(body_bytes)}"
        parameters = {"embed_below_bytes": embed_below}
        found.append(Case(name, run, parameters, floor.STREAM, EMBEDS))
    return found


# Ways to publish a group.

Way = Callable[[pyqstore.Channel, int, bytes], None]


def each_confirmed(channel: pyqstore.Channel, group: int, body: bytes) -> None:
    """A wait for each."""
    for _ in range(group):
        channel.basic_publish("", QUEUE, body, PERSISTENT)
        confirm(channel)


def committed(channel: pyqstore.Channel, group: int, body: bytes) -> None:
    """All of them, then a commit."""
    for _ in range(group):
        channel.basic_publish("", QUEUE, body, PERSISTENT)
    channel.tx_commit()


def batch_committed(channel: pyqstore.Channel, group: int, body: bytes) -> None:
    """All of them as a record batch, made here, too, then a commit."""
    batch = pa.record_batch({"body": pa.array([body] * group, pa.binary())})
    channel.publish_batch(batch, "", QUEUE)
    channel.tx_commit()


# Rounds.


def _run_confirms(way: Way, group: int, body_bytes: int, times: int, directory: Path) -> Sample:
    body = b"x" * body_bytes
    with opened(directory, times * group, body_bytes) as channel:
        return repeated(times, lambda: way(channel, group, body), group, body_bytes)


def _run_transactions(way: Way, group: int, body_bytes: int, times: int, directory: Path) -> Sample:
    body = b"x" * body_bytes
    with opened_store(directory) as store:
        prepared(store, times * group, body_bytes).close()
        with store.channel() as channel:
            channel.tx_select()
            return repeated(times, lambda: way(channel, group, body), group, body_bytes)


def _run_threads(count: int, times: int, delay_us: int, directory: Path) -> Sample:
    """So many threads; what they say of themselves together, and how many shared a sync."""
    body = b"x" * BODY_BYTES
    with opened_store(directory, commit_delay_us=delay_us) as store:
        prepared(store, count * times, BODY_BYTES).close()
        channels = [store.channel() for _ in range(count)]
        for channel in channels:
            channel.confirm_select()
        once = [partial(once_confirmed, each, 1, body) for each in channels]
        tasks = [partial(repeated, times, each, 1, BODY_BYTES) for each in once]
        syncs = store.stats()["fdatasyncs"]
        seconds, samples = together(tasks)
        syncs = store.stats()["fdatasyncs"] - syncs
    latencies = [latency for sample in samples for latency in sample.latencies_us]
    messages = count * times
    figures = {"messages_per_sync": messages / syncs}
    return Sample(seconds, messages, messages * BODY_BYTES, latencies, figures)


def _run_embed(body_bytes: int, embed_below: int, count: int, directory: Path) -> Sample:
    with opened_store(directory, embed_below=embed_below) as store:
        with prepared(store, count, body_bytes) as channel:
            before = _written(store)
            start = time.perf_counter()
            publish_rows(channel, count, body_bytes)
            seconds = time.perf_counter() - start
        written = _written(store) - before
    total_bytes = count * body_bytes
    figures = {"written_over_bodies": written / total_bytes}
    return Sample(seconds, count, total_bytes, figures=figures)


def _written(store: pyqstore.Store) -> int:
    numbers = store.stats()
    return int(numbers["bytes_journalled"] + numbers["bytes_stored"])


def notes(results: list[Result]) -> list[str]:
    """What to know to read the numbers, and how far threads share syncs."""
    told = [
        "Latency is from the first publish of a group to the confirm of its last message.",
        "The floor of latency is a pwrite and an fdatasync of as many bytes as the group's bodies.",
        "Where much is written, a store has journal files of full size, as after a while at work.",
    ]
    by_threads = {
        result.case.parameters["threads"]: result.metrics["messages_per_s"].median
        for result in results
        if result.case.group == THREADS and "threads" in result.case.parameters
    }
    for count, rate in by_threads.items():
        if count != 1:
            told.append(f"{count} threads confirm {rate / by_threads[1]:.1f} times what one does.")
    return told

"""Growing one thing at a time: threads, queues, bodies, batches, transactions, backlogs.

Throughput and latency of each way to publish and to receive, against the disk in the same rounds.
A line that bends is a cliff.  --full adds a backlog of 100 million, which takes 30 GB of disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from . import child, floor, scaling_loads
from .backlogs import BUDGET, drain, fill, reopen
from .plots import MIB, Plot
from .runs import Case, Options, Result, Sample

TITLE = "What grows, and what it costs"
ROUNDS, QUICK_ROUNDS = 3, 1
BODY_BYTES = 100
THREADS = "Threads, each with a channel and a queue, bodies of 100 B"
QUEUES = "Queues, bodies of 100 B"
BODIES = "Sizes of bodies"
BATCHES = "Rows of publish_batch beyond memory, budget 64 MiB, bodies of 100 B"
TRANSACTIONS = "Messages of a transaction, budget 2 MiB, bodies of 100 B"
BACKLOG = "Backlog of bodies of 100 B, budget 64 MiB"
_THREADS = (1, 2, 4, 8, 16)
_WAITING = (1, 16, 128)
_QUEUES = (1, 10, 100, 1000, 10_000)
_BODY_SIZES = (10, 100, 1024, 2048, 4096, 16_384, 131_072, 1_048_576)
_ROWS = (1, 10, 100, 1000, 10_000)
_TRANSACTIONS = (1000, 10_000, 100_000)
_BACKLOGS = (1000, 10_000, 100_000, 1_000_000, 10_000_000)
_FULL_BACKLOG = 100_000_000
_SINGLES = 40_000
_CHECKPOINTED = 10_000
_SMALL_QUEUES = (1000, 10_000, 100_000)
_SMALL_MESSAGES = 20
_BATCHED = 400_000
_SIZED_BYTES = 64 << 20
_WAITS = 400
_BENT = 3.0  # times slower per message than the step before: to be told

OPTIONS = [
    click.Option(
        ["--only"],
        type=click.Choice(["threads", "queues", "bodies", "batches", "transactions", "backlog"]),
        multiple=True,
        help="This part alone, and others that are named so.  Default: all.",
    ),
    click.Option(["--full"], is_flag=True, help="A backlog of 100 million messages as well."),
]

PLOTS = [
    Plot("Threads: messages a second", "threads", "messages_per_s", group=THREADS, log_x=True,
         log_y=True),
    Plot("Threads: publish and wait, p50", "threads", "p50_us", group=THREADS, log_x=True),
    Plot("Queues: messages a second", "queues", "messages_per_s", group=QUEUES, log_x=True,
         log_y=True),
    Plot("Bodies: bytes a second", "body_bytes", "bytes_per_s", group=BODIES, log_x=True,
         log_y=True, x_label="body"),
    Plot("Bodies: publish and wait, p50", "body_bytes", "p50_us", group=BODIES, log_x=True,
         log_y=True, x_label="body"),
    Plot("Batches: messages a second, beyond memory", "rows", "messages_per_s", group=BATCHES,
         log_x=True, log_y=True, x_label="rows of a batch"),
    Plot("Batches: the longest that a call took", "rows", "longest_call_us", group=BATCHES,
         log_x=True, log_y=True, x_label="rows of a batch"),
    Plot("Transactions: commit, for each message", "transaction", "commit_us_per_message",
         group=TRANSACTIONS, log_x=True, log_y=True, unit="µs a message",
         x_label="messages of a transaction"),
    Plot("Backlog: messages a second", "messages", "messages_per_s", group=BACKLOG, log_x=True,
         log_y=True, x_label="messages"),
    Plot("Backlog: time to open after a kill, cold", "messages", "open_s", group=BACKLOG,
         log_x=True, log_y=True, unit="seconds", x_label="messages"),
    Plot("Backlog: the most memory over idle", "messages", "peak_rss_over_idle_bytes",
         group=BACKLOG, log_x=True, x_label="messages",
         lines={"budget + 64 MiB": BUDGET / MIB + 64}),
]  # fmt: skip


def cases(options: Options) -> list[Case]:
    """The parts that were asked for."""
    parts: dict[str, Callable[[Options], list[Case]]] = {
        "threads": threads,
        "queues": queues,
        "bodies": bodies,
        "batches": batches,
        "transactions": transactions,
        "backlog": backlog,
    }
    only: Any = options.chosen.get("only")
    names: Sequence[str] = only or tuple(parts)
    return [case for name in parts if name in names for case in parts[name](options)]


def threads(options: Options) -> list[Case]:
    """The same workload by more threads."""
    singles, batched = options.count(_SINGLES, 100), options.count(_BATCHED, 100)
    found = [
        floor.sync(BODY_BYTES, options.count(_WAITS, 10), THREADS),
        floor.stream(max(4 * MIB, batched * BODY_BYTES), group=THREADS),
    ]
    for count in options.sweep(*_THREADS):
        waits = options.count(_WAITS, 5)
        for name, run, held in (
            ("publish and wait", partial(scaling_loads.wait_in_threads, count, waits), found[0]),
            ("basic_publish", partial(scaling_loads.publish_in_threads, count, singles), found[1]),
            ("publish_batch", partial(scaling_loads.batch_in_threads, count, batched), found[1]),
            ("get_batch + ack", partial(scaling_loads.get_in_threads, count, batched), None),
        ):
            parameters = {"threads": count}
            found.append(Case(name, run, parameters, held.name if held else None, THREADS))
    for count in options.sweep(*_WAITING):
        run = partial(scaling_loads.wake_in_threads, count, options.count(_SINGLES // 8, 100))
        found.append(Case("publish to one that waits", run, {"threads": count}, None, THREADS))
    return found


def queues(options: Options) -> list[Case]:
    """As many messages over more queues, in turn."""
    singles, batched = options.count(_SINGLES, 100), options.count(_BATCHED, 100)
    checkpointed = options.count(_CHECKPOINTED, 100)
    found = [floor.stream(max(4 * MIB, batched * BODY_BYTES), group=QUEUES)]
    for count in options.sweep(*_QUEUES):
        for name, run in (
            ("basic_publish", partial(scaling_loads.publish_to_queues, count, singles)),
            ("publish_batch, a key a row", partial(scaling_loads.batch_to_queues, count, batched)),
            ("get_batch + ack", partial(scaling_loads.get_from_queues, count, batched)),
            ("checkpoint", partial(scaling_loads.checkpoint_queues, count, checkpointed)),
        ):
            held = None if name in ("get_batch + ack", "checkpoint") else floor.STREAM
            found.append(Case(name, run, {"queues": count}, held, QUEUES))
    for count in options.sweep(*_SMALL_QUEUES):
        run = partial(scaling_loads.checkpoint_small, options.count(count, 10), _SMALL_MESSAGES)
        found.append(Case("checkpoint, 20 a queue", run, {"queues": count}, None, QUEUES))
    return found


def bodies(options: Options) -> list[Case]:
    """As many bytes in larger bodies."""
    total = options.count(_SIZED_BYTES, 1 << 20)
    found = [floor.stream(total, group=BODIES)]
    for body_bytes in options.sweep(*_BODY_SIZES):
        waits = options.count(_WAITS // 4, 5)
        sync = floor.sync(body_bytes, waits, BODIES)
        found.append(sync)
        for name, run, held in (
            ("publish and wait", scaling_loads.wait_for_bodies, sync.name),
            ("basic_publish", scaling_loads.publish_bodies, floor.STREAM),
            ("publish_batch", scaling_loads.batch_bodies, floor.STREAM),
            ("get_batch + ack", scaling_loads.get_bodies, None),
        ):
            count = waits if run is scaling_loads.wait_for_bodies else total // body_bytes
            most = options.count(_SINGLES if name == "basic_publish" else _BATCHED, 100)
            once = partial(run, body_bytes, max(1, min(count, most)))
            found.append(Case(name, once, {"body_bytes": body_bytes}, held, BODIES))
    return found


def batches(options: Options) -> list[Case]:
    """The same messages in smaller batches, into a backlog that memory does not hold."""
    messages = options.count(_BATCHED, 100)
    found = [floor.stream(max(4 * MIB, messages * BODY_BYTES), group=BATCHES)]
    for rows in options.sweep(*_ROWS):
        run = partial(scaling_loads.batches_beyond_memory, rows, messages)
        found.append(Case("publish_batch", run, {"rows": rows}, floor.STREAM, BATCHES))
    return found


def transactions(options: Options) -> list[Case]:
    """Larger transactions, the largest of which memory does not hold."""
    found = []
    for most in _TRANSACTIONS:
        count = options.count(most, 10)
        run = partial(scaling_loads.transaction, count)
        found.append(Case("transaction", run, {"transaction": count}, group=TRANSACTIONS))
    return found


def backlog(options: Options) -> list[Case]:
    """Filled, opened after a kill, drained cold."""
    sizes = list(options.sweep(*_BACKLOGS))
    if options.chosen.get("full"):
        sizes.append(_FULL_BACKLOG)
    counts = list(dict.fromkeys(options.count(size, 100) for size in sizes))
    raw_bytes = max(4 * MIB, min(counts[-1] * BODY_BYTES, 1 << 30))
    found = [floor.new_files(raw_bytes, group=BACKLOG), floor.read(raw_bytes, group=BACKLOG)]
    for count in counts:
        for name, run, held in (
            ("publish", _fill, floor.NEW_FILES),
            ("open, drain", _drain, floor.READ),
        ):
            once = partial(run, count)
            found.append(Case(name, once, {"messages": count}, held, BACKLOG))
    return found


def _fill(messages: int, directory: Path) -> Sample:
    path = directory / "store"
    filled = child.call(fill, path=path, messages=messages, body_bytes=BODY_BYTES)
    figures = {name: filled[name] for name in ("peak_rss_over_idle_bytes", "disk_over_live")}
    return Sample(filled["seconds"], messages, messages * BODY_BYTES, figures=figures)


def _drain(messages: int, directory: Path) -> Sample:
    path = directory / "store"
    child.call(fill, path=path, messages=messages, body_bytes=BODY_BYTES)
    opened = child.call(reopen, path=path, messages=messages, cold=True)
    drained = child.call(drain, path=path, messages=messages, body_bytes=BODY_BYTES)
    figures = {
        "peak_rss_over_idle_bytes": drained["peak_rss_over_idle_bytes"],
        "open_s": opened["open_s"],
    }
    return Sample(drained["seconds"], messages, messages * BODY_BYTES, figures=figures)


def notes(results: list[Result]) -> list[str]:
    """What to know to read the numbers, and each place where a line bends."""
    told = [
        "More threads than processors share them; Python calls of one process share its lock, too.",
        "get_batch + ack receives what is in memory, except where bodies or backlog exceed it.",
        "Of many queues each holds few messages: a batch in or out pays its fixed cost for few of"
        " them.  A checkpoint carries small queues in its own file.",
        "Bodies of 4 KiB and more (embed_below) lie in the message store: two files are synced for"
        " a confirm, and each body is read by itself.",
        "A backlog beyond the budget, from about a million messages on, comes from the disk.",
    ]
    lines: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        if result.case.parameters and result.metric("messages_per_s") is not None:
            lines.setdefault((result.case.group, result.case.name), []).append(result)
    for line in lines.values():
        told += bends(line)
    return told


def bends(line: Sequence[Result]) -> list[str]:
    """Where a step of the sweep is much slower than the one before, beyond what bytes explain."""
    told = []
    for before, after in itertools.pairwise(line):
        slower = cost(after) / cost(before)
        if slower > _BENT:
            told.append(f"BEND: {after.case.group}: {after.case.title}: {slower:.1f} times slower.")
    return told


def cost(result: Result) -> float:
    """Seconds that a message took; where the body is what grows, that a byte took."""
    name = "bytes_per_s" if "body_bytes" in result.case.parameters else "messages_per_s"
    return 1 / result.metrics[name].median

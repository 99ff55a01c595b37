"""What the documents say of storing: embedding, segments, lazy queues.

Memory is the store's own count of what its messages have there.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pyqstore
from pyqstore.bench.floor import size
from pyqstore.bench.loads import QUEUE, batch_of, confirm, expect, parts, take
from pyqstore.bench.plots import MIB, Plot
from pyqstore.bench.runs import Case, Options, Sample
from pyqstore.bench.stores import wait_until_quiet

from .broker import Asked, Broker
from .claims import RABBIT, Claim, Found, Group, opened_store, prepared

_BUDGET = 32 << 20
_LARGE_BUDGET = 256 << 20
_ROWS = 1000  # of a batch
_QUIET_SECONDS = 0.06


def _run(
    messages: int,
    body_bytes: int,
    directory: Path,
    *,
    lazy: bool = False,
    page: bool = False,
    **options: Any,
) -> Sample:
    """Publish a backlog, and receive and acknowledge it; the rates and the memory of both.

    With page, all of it goes to the disk in between.
    """
    with opened_store(directory, **options) as store:
        channel = prepared(store, messages, body_bytes)
        if lazy:
            store.set_queue_mode(QUEUE, "lazy")
        batch = batch_of(min(_ROWS, messages), body_bytes)
        before, held_most = _written(store), 0
        start = time.perf_counter()
        for part in parts(batch, messages):
            channel.publish_batch(part, "", QUEUE)
            held_most = max(held_most, store.stats()["ram_bytes"])
        confirm(channel)
        filled = time.perf_counter() - start
        held, written = _settled_ram(store), _written(store) - before
        if page:
            store.set_queue_mode(QUEUE, "lazy")
            store.checkpoint()
        start = time.perf_counter()
        taken = 0
        while got := take(channel, _ROWS):
            taken += got
            held_most = max(held_most, store.stats()["ram_bytes"])
        store.sync()
        drained = time.perf_counter() - start
    expect(taken, messages)
    figures = {
        "published_per_s": messages / filled,
        "consumed_per_s": messages / drained,
        "backlog_memory_bytes": held,
        "most_memory_bytes": held_most,
        "written_over_bodies": written / (messages * body_bytes),
    }
    return Sample(filled + drained, messages, figures=figures)


def _settled_ram(store: pyqstore.Store) -> int:
    """What messages have in memory once the pager is done."""
    wait_until_quiet(lambda: store.stats()["ram_bytes"], _QUIET_SECONDS)
    return int(store.stats()["ram_bytes"])


def _written(store: pyqstore.Store) -> int:
    numbers = store.stats()
    return int(numbers["bytes_journalled"] + numbers["bytes_stored"])


def _run_theirs(messages: int, asked: Asked, broker: Broker, _directory: Path) -> Sample:
    """Publish; and, as a backlog of its own, receive."""
    filled = broker.ask("hold", count=messages, **asked)
    broker.ask("forget")
    drained = broker.ask("consume", count=messages, prefetch=_ROWS, multiple=1, ack_every=100,
                         **asked)  # fmt: skip
    seconds = filled["seconds"][0], drained["seconds"][0]
    figures = {
        "published_per_s": messages / seconds[0],
        "consumed_per_s": messages / seconds[1],
    }
    return Sample(sum(seconds), messages, figures=figures)


# Embedding.

EMBEDDING = "Embedding small messages in the index"
EMBEDDED, SEPARATE = "embedded in the index", "in the message store"
_EMBEDDED_BODY_BYTES = 1024
_EMBEDDED = 40_000
_THEIR_EMBEDDED = 6000


def embedding(options: Options, group: Group) -> list[Case]:
    """Bodies of 1 KiB below the threshold, and above it."""
    count = options.count(_EMBEDDED, 20)
    theirs = options.count(_THEIR_EMBEDDED, 20)
    for name, embed_below in ((SEPARATE, 0), (EMBEDDED, 4096)):
        given: dict[str, Any] = {"memory_budget": _BUDGET, "embed_below": embed_below, "page": True}
        group.ours(name, partial(_run, count, _EMBEDDED_BODY_BYTES, **given))
        group.theirs(name, partial(_run_embedded, theirs, embed_below))
    return group.cases


def _run_embedded(messages: int, embed_below: int, broker: Broker, directory: Path) -> Sample:
    asked: Asked = {"body": _EMBEDDED_BODY_BYTES, "lazy": 1}
    node = broker if embed_below else broker.without_embedding
    return _run_theirs(messages, asked, node, directory)


def _embedding(found: Found, of: str) -> str:
    pair = found.of(of + EMBEDDED), found.of(of + SEPARATE)
    return (
        f"embedded, bodies of {size(_EMBEDDED_BODY_BYTES)} are published at"
        f" {found.ratio('published_per_s', *pair)} the rate of those in the message store, and"
        f" consumed from the disk at {found.ratio('consumed_per_s', *pair)}."
    )


# A raised threshold.

THRESHOLD = "A raised threshold of embedding, and memory"
RAISED = "backlog of 8 KiB bodies"
_RAISED_BODY_BYTES = 8192
_RAISED = 12_000
_THRESHOLDS = (1024, 4096, 16_384, 65_536)


def thresholds(options: Options, group: Group) -> list[Case]:
    """Bodies that a threshold sends to either place, behind a budget of 32 MiB."""
    count = options.count(_RAISED, 20)
    for embed_below in options.sweep(*_THRESHOLDS):
        given: dict[str, Any] = {"memory_budget": _BUDGET, "embed_below": embed_below}
        run = partial(_run, count, _RAISED_BODY_BYTES, **given)
        group.ours(RAISED, run, embed_below_bytes=embed_below)
    return group.cases


def _threshold_here(found: Found) -> str:
    told = [
        f"{found.told(RAISED, 'most_memory_bytes', embed_below_bytes=each)} at {size(int(each))}"
        for each in found.values(RAISED, "embed_below_bytes")
    ]
    return (
        f"the most memory that messages take, with a budget of {_BUDGET // MIB} MiB and a"
        f" backlog of bodies of {size(_RAISED_BODY_BYTES)}, by threshold: {', '.join(told)}."
    )


# Segments.

SEGMENTS = "Entries of a segment"
PAGED = "backlog of 100 B bodies"
_SEGMENT_ENTRIES = (64, 512, 4096, 16_384, 65_536)
_SEGMENTED = 150_000


def segments(options: Options, group: Group) -> list[Case]:
    """A backlog that does not fit, in segments of any size."""
    count = options.count(_SEGMENTED, 100)
    for entries in options.sweep(*_SEGMENT_ENTRIES):
        given: dict[str, Any] = {
            "memory_budget": _BUDGET // 4,
            "segment_entries": entries,
            "page": True,
        }
        run = partial(_run, count, 100, **given)
        group.ours(PAGED, run, segment_entries=entries)
    return group.cases


def _segments_here(found: Found) -> str:
    told = [
        f"{each:,}: {found.told(PAGED, 'consumed_per_s', segment_entries=each)},"
        f" {found.told(PAGED, 'most_memory_bytes', segment_entries=each)}"
        for each in found.values(PAGED, "segment_entries")
    ]
    return f"messages consumed from the disk and the most memory, by entries: {'; '.join(told)}."


# Lazy queues.

LAZINESS = "Lazy queues"
DEFAULT, LAZY = "default queue", "lazy queue"
_LAZY_BODY_BYTES = 1000
_BACKLOG = 60_000
_THEIR_BACKLOG = 6000


def laziness(options: Options, group: Group) -> list[Case]:
    """A backlog that memory has room for, in either kind of queue."""
    count = options.count(_BACKLOG, 20)
    theirs = options.count(_THEIR_BACKLOG, 20)
    for name, lazy in ((DEFAULT, False), (LAZY, True)):
        given: dict[str, Any] = {"memory_budget": _LARGE_BUDGET, "lazy": lazy}
        group.ours(name, partial(_run, count, _LAZY_BODY_BYTES, **given))
        asked: Asked = {"body": _LAZY_BODY_BYTES, "lazy": int(lazy)}
        group.theirs(name, partial(_run_lazy, theirs, asked))
    return group.cases


def _run_lazy(messages: int, asked: Asked, broker: Broker, directory: Path) -> Sample:
    """As above, and what is in memory in between, which the server is asked for once."""
    sample = _run_theirs(messages, asked, broker, directory)
    key = f"{asked['lazy']}, {messages}"
    if key not in broker.in_memory:
        broker.ask("hold", count=messages, **asked)
        broker.in_memory[key] = broker.message_bytes_in_memory()
        broker.ask("forget")
    figures = {**sample.figures, "backlog_memory_bytes": float(broker.in_memory[key])}
    return Sample(sample.seconds, messages, figures=figures)


def _lazy(found: Found, of: str) -> str:
    pair = found.of(of + LAZY), found.of(of + DEFAULT)
    return (
        f"a backlog takes {found.told(of + DEFAULT, 'backlog_memory_bytes')} in a default queue"
        f" and {found.told(of + LAZY, 'backlog_memory_bytes')} in a lazy one, which is published"
        f" to at {found.ratio('published_per_s', *pair)} the rate and consumed at"
        f" {found.ratio('consumed_per_s', *pair)}."
    )


CLAIMS = [
    Claim(
        "embedding",
        EMBEDDING,
        "003: messages smaller than queue_index_embed_msgs_below (4096) are stored in the queue's"
        " index, which makes the system about 10 % quicker.",
        embedding,
        Plot(EMBEDDING, "case", "published_per_s", group=EMBEDDING, log_y=True,
             unit="published, messages/s"),
        partial(_embedding, of=""),
        partial(_embedding, of=f"{RABBIT}: "),
        "what is embedded is one record in the journal and one row in a segment; what is not is a"
        " write to a message file, a reference in the journal, a second file to sync, and a read"
        " of its own for each message that comes back.",
    ),
    Claim(
        "threshold",
        THRESHOLD,
        "003: each queue keeps at least a segment (16,384 entries) in memory when it reads, so to"
        " raise the threshold by a little can multiply memory.",
        thresholds,
        Plot(THRESHOLD, "embed_below_bytes", "most_memory_bytes", group=THRESHOLD,
             even=True, x_label="embed_below", lines={"budget": _BUDGET / MIB}),
        _threshold_here,
        "not shown: a node has one threshold for all of its queues and would be started for each,"
        " and what it has in memory beside messages is larger than the difference.",
        "bodies above the threshold go to the message store and leave memory at once; those below"
        " it stay as long as there is room, and a read of a segment brings them back. So the"
        " threshold moves memory, as the document says, but never beyond the budget, whatever a"
        " segment holds.",
    ),
    Claim(
        "segments",
        SEGMENTS,
        "003: segment files hold SEGMENT_ENTRY_COUNT records, 16,384.",
        segments,
        Plot(SEGMENTS, "segment_entries", "consumed_per_s", group=SEGMENTS, even=True,
             unit="consumed, messages/s", x_label="segment_entries"),
        _segments_here,
        "not shown: the number is compiled in, or one of a node's start.",
        "small segments are many files, each with its own open, header and sync; large ones keep"
        " the file of a few messages that are left. The default lies where more entries gain"
        " little.",
    ),
    Claim(
        "lazy",
        LAZINESS,
        "003: a lazy queue stores what it receives in files at once, persistent or not: less"
        " memory, more input and output, and for persistent messages no more than there is anyway.",
        laziness,
        Plot(LAZINESS, "case", "backlog_memory_bytes", group=LAZINESS),
        partial(_lazy, of=""),
        partial(_lazy, of=f"{RABBIT}: "),
        "memory is either one's own count of what messages have there. The lazy queue's messages"
        " leave memory when they are in their segment; publishing does not wait for that.",
    ),
]  # fmt: skip

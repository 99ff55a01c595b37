"""Making a copy of a damaged store whole: what cannot be read leaves it, and is counted.

The engine salvages what it can: the journal around damaged places, segments, declarations.  What
that leaves is done here: MANIFEST and a checkpoint that are lost, and single messages.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from ..disk import sync
from ..errors import StoreCorrupt
from ..fields import decode_table
from ..figures import QueueStatus
from ..listings import text_of
from ..store import Store
from .manifest import Manifest, made_again, message_files
from .report import Report

__all__ = ["mend"]

Progress = Callable[[str, int, int], object]

_DIRECTORIES = ("journal", "checkpoint", "index", "transient", "messages", "streams")
_BROWSE_ROWS = 4096
_BROWSE_BYTES = 16 << 20
_TRIES = 4


def mend(store: Path, report: Report, progress: Progress) -> None:
    """``store`` is a copy, and nobody has it open.  StoreCorrupt: it is beyond help."""
    for name in _DIRECTORIES:
        (store / name).mkdir(mode=0o700, exist_ok=True)
    while True:
        try:
            with _opened(store, report, progress) as opened:
                _tell_losses(opened, report)
                _drop_unreadable(opened, report, progress)
                opened.checkpoint()
            break
        except StoreCorrupt as error:  # a stream cannot go on in its last file
            path = error.path or ""
            if not path.startswith("streams/") or not (store / path).is_file():
                raise
            (store / path).unlink()
    for name, end in message_files(store):
        _fill_up(store / "messages" / name, end)
    Store(store, create=False, control=False).close()  # as who uses it opens it


def _fill_up(path: Path, end: int) -> None:
    """What a message file has lost at its end is zeros, which no message refers to any more."""
    if path.exists() and path.stat().st_size < end:
        os.truncate(path, end)
        sync(path)


def _opened(store: Path, report: Report, progress: Progress) -> Store:
    """The engine tells by the file it names what it cannot do without."""
    for _ in range(_TRIES):
        try:
            return Store(
                store,
                recovery="salvage",
                create=False,
                control=False,
                checkpoint_interval=None,
                progress=lambda done, total: progress("opening", done, total),
            )
        except StoreCorrupt as error:
            path = error.path or ""
            if path == "MANIFEST" and not report.manifest_made_again:
                _make_manifest(store, report, error)
            elif path.startswith("checkpoint/") and not report.lost_checkpoint:
                report.lost_checkpoint = True
                _do_without_checkpoint(store)
            else:
                raise
    raise AssertionError("each try takes away what refused the one before")


def _make_manifest(store: Path, report: Report, error: StoreCorrupt) -> None:
    made = made_again(store)
    if made is None:
        raise error
    made.write(store)
    report.manifest_made_again = True
    if not made.checkpoint.number:
        report.lost_checkpoint = made.sessions[0].base_lsn > 0  # else there need not be one
        _do_without_checkpoint(store)


def _do_without_checkpoint(store: Path) -> None:
    """What only the checkpoint could tell of is of no use: files of segments and of keys, whose
    names are given again."""
    Manifest.read(store).without_checkpoint().write(store)
    for name in ("index", "checkpoint"):
        shutil.rmtree(store / name)
        (store / name).mkdir(mode=0o700)


def _tell_losses(store: Store, report: Report) -> None:
    found = store.recovery_report
    report.lost_ranges = found.lost_ranges
    report.lost_bytes = found.lost_bytes
    report.torn_bytes = found.torn_bytes
    report.lost_segments = found.lost_segments
    report.lost_segment_messages = found.lost_messages
    if found.recovered_queues:
        report.recovered_queues = [name for name in found.queues if name.startswith("recovered.")]


def _drop_unreadable(store: Store, report: Report, progress: Progress) -> None:
    """Every message is read.  One that cannot be leaves its queue; a stream keeps its offsets, and
    a work queue has what its stream has."""
    report.messages, report.lost_messages, report.lost_offsets = 0, {}, {}
    statuses = {name: store.queue_status(name) for name in _queues_with_content(store)}
    total = sum(_count(status) for status in statuses.values())
    done = 0
    with store.channel() as channel:
        for name, status in statuses.items():
            for read, position, lost in _walk(store, name, status.first):
                if status.stream and lost:
                    report.lost_offsets[name] = report.lost_offsets.get(name, 0) + lost
                elif lost and channel._queue_discard(name, position):
                    report.lost_messages[name] = report.lost_messages.get(name, 0) + 1
                done += read + lost
                progress("reading", done, max(done, total))
            report.messages += _count(store.queue_status(name))
    report.messages -= sum(report.lost_offsets.values())
    report.queues = len(store.queues())


def _queues_with_content(store: Store) -> list[str]:
    arguments = {text_of(row[0]): decode_table(row[4]) for row in store._queues()}
    return sorted(name for name, given in arguments.items() if "x-stream-source" not in given)


def _count(status: QueueStatus) -> int:
    if status.stream:
        return status.next - status.first
    return status.messages_ready + status.messages_delayed


def _walk(store: Store, queue: str, first: int) -> Iterator[tuple[int, int, int]]:
    """How many messages were read; or the position of one that cannot be, and how many positions
    from there on are lost."""
    position = first
    while True:
        before = position
        position, batch, error = store._browse(queue, position, _BROWSE_ROWS, _BROWSE_BYTES)
        if batch is not None:
            yield len(batch), 0, 0
        elif error is None:
            return
        elif isinstance(error, StoreCorrupt):
            yield 0, position - 1, position - before
        else:
            raise error

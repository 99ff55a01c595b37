"""Operations that change nothing."""

from __future__ import annotations

import os
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..archive_reports import archive_of
from ..errors import NotFound, StoreCorrupt
from ..fields import decode_table
from ..figures import QueueStatus
from ..listings import QueueRow, queues_of
from ..peeking import peeks
from ..places import Start, start_of
from ..shovelling.known import shovels_of
from ..store import Store
from ..stream import offset_of
from ..stream_times import Times
from .messages import PACK_BYTES, PACK_MESSAGES, Seen, packed, seen
from .plain import plain
from .talk import Talk
from .wire import Report

__all__ = ["dump", "inspect", "overview", "queues", "stats"]

_COUNTS = ("ready", "unacked", "delayed")
_FOLDERS = ("journal", "checkpoint", "index", "transient", "messages", "streams")
_POSITION_MAX = 2**64 - 1
_NOTE_BYTES = 1024  # of an answer: an error's text has at most 511


def inspect(store: Store, _arguments: Report, _talk: Talk) -> Report:
    """Returns queues with their counts, and files with their sizes."""
    directory = Path(store.directory)
    counts = {name: _count(directory / name) for name in _FOLDERS}
    return {
        "path": store.path,
        "segment_entries": store.options["segment_entries"],
        "queues": _statuses(store),
        "segments": counts["index"][0],
        "files": {name: count[0] for name, count in counts.items()},
        "bytes": {name: count[1] for name, count in counts.items()},
        "staging": _staging(directory / "staging"),
        "inbox": _inbox(directory / "inbox"),
    }


def stats(store: Store, _arguments: Report, _talk: Talk) -> Report:
    """Returns the store's numbers, and those of its shovels and its archive."""
    report: Report = plain(
        {
            **store.stats().to_dict(),
            "options": dict(store.options),
            "recovery_report": store.recovery_report.to_dict(),
        }
    )
    shovels = {name: each.to_dict() for name, each in shovels_of(store).items()}
    archive = archive_of(store)
    return {
        **report,
        **({"shovels": shovels} if shovels else {}),
        **({} if archive is None else {"archive": archive.to_dict()}),
    }


def queues(store: Store, _arguments: Report, _talk: Talk) -> Report:
    """Returns queues, exchanges and bindings."""
    report: Report = plain(
        {
            "queues": _statuses(store),
            "exchanges": [info._asdict() for info in store.exchanges().values()],
            "bindings": [binding._asdict() for binding in store.bindings()],
        }
    )
    return report


def overview(store: Store, _arguments: Report, _talk: Talk) -> Report:
    """Returns the data of ``top`` at one moment, without waiting for any queue."""
    counters = store.stats(detail=True).to_dict()
    counted = counters.pop("queues")
    for name in ("channels", "connections", "exchanges", "routes", "all_channels"):
        del counters[name]
    report: Report = plain(
        {
            "path": store.path,
            "pid": os.getpid(),
            "read_only": store.options["read_only"],
            "monotonic_s": time.monotonic(),
            "stats": counters,
            "memory_budget": store.options["memory_budget"],
            "queues": {row.name: _row(row, counted.get(row.name, {})) for row in queues_of(store)},
        }
    )
    return report


def _row(row: QueueRow, counted: dict[str, int]) -> dict[str, Any]:
    return {
        "ready": row.ready,
        "unacked": row.unacked,
        "delayed": row.delayed,
        "consumers": row.consumers,
        "ram_bytes": row.ram_bytes,
        "stream": decode_table(row.arguments).get("x-queue-type") == "stream",
        **{name: counted.get(name, 0) for name in ("publish", "deliver_get", "ack")},
    }


def dump(store: Store, arguments: Report, talk: Talk) -> Report:
    """Sends messages of ``queue``, in order: at most ``limit``, in a stream from ``start`` to
    ``stop``, only ready ones with ``ready``, and with ``times`` those of a stream with their times.
    Sends the approximate count, then the messages, with damage at its place."""
    name, limit = str(arguments["queue"]), arguments.get("limit")
    ready_alone = bool(arguments.get("ready"))
    status = store.queue_status(name)
    begin, end = _range(
        store, name, status, start_of(arguments.get("start")), start_of(arguments.get("stop"))
    )
    count = sum(int(status[f"messages_{key}"]) for key in _COUNTS)
    count = count if not status.stream else max(0, min(end, status.next) - begin)
    talk.tell({"count": count if limit is None else min(limit, count), "stream": status.stream})
    pack = _Pack(talk)
    times = Times(store, name) if status.stream and arguments.get("times") else None
    sent = 0
    if limit == 0:
        return {"count": 0, "damages": 0}
    for message, state in peeks(store, name, pack.damaged, begin):
        if message.delivery_tag >= end:
            break
        if ready_alone and state != "ready":
            continue
        time_us = None if times is None else times.of(message.delivery_tag)
        pack.add(seen(message, state, time_us))
        sent += 1
        if sent == limit:
            break
    pack.send()
    return {"count": sent, "damages": pack.damages}


class _Pack:
    """Messages and damage, sent in order."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._messages: list[Seen] = []
        self._bytes = 0
        self.damages = 0

    def add(self, message: Seen) -> None:
        self._messages.append(message)
        self._bytes += message.bytes
        if len(self._messages) >= PACK_MESSAGES or self._bytes >= PACK_BYTES:
            self.send()

    def send(self) -> None:
        if self._messages:
            self._talk.tell(*packed(self._messages))
        self._messages = []
        self._bytes = 0

    def damaged(self, error: StoreCorrupt) -> None:
        self.send()
        self.damages += 1
        self._talk.tell({"damaged": str(error)})


def _statuses(store: Store) -> dict[str, Any]:
    """The status of each queue, except those that are deleted meanwhile."""
    found = {}
    for name in store.queues():
        with suppress(NotFound):
            found[name] = plain(store.queue_status(name).to_dict())
    return found


def _range(
    store: Store,
    name: str,
    status: QueueStatus,
    start: Start | None,
    stop: Start | None,
) -> tuple[int, int]:
    """The first position, and the end."""
    if not status.stream and (start is not None or stop is not None):
        raise ValueError(f"queue {name!r} is no stream: --from and --to are about offsets")
    begin = status.first if start is None else offset_of(store, name, start)
    return begin, _POSITION_MAX if stop is None else offset_of(store, name, stop)


def _staging(folder: Path) -> list[dict[str, Any]]:
    """Staged files of Spark jobs: of running jobs, and of jobs whose driver was killed."""
    if not folder.is_dir():
        return []
    jobs = sorted((entry for entry in os.scandir(folder) if entry.is_dir()), key=lambda e: e.name)
    now = time.time()
    return [
        {
            "job": job.name,
            "files": _count(Path(job.path))[0],
            "bytes": _count(Path(job.path))[1],
            "age_s": max(0, int(now - job.stat().st_mtime)),
        }
        for job in jobs
    ]


def _inbox(folder: Path) -> list[dict[str, Any]]:
    """Requests of processes for adoption, and leftovers."""
    if not folder.is_dir():
        return []
    now = time.time()
    notes = []
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        with suppress(FileNotFoundError):  # it was withdrawn, or its answer was fetched
            if entry.is_file():
                status = entry.stat()
                state, error = _note_state(Path(entry.path))
                notes.append(
                    {
                        "name": entry.name,
                        "state": state,
                        "error": error,
                        "bytes": status.st_size,
                        "age_s": max(0, int(now - status.st_mtime)),
                    }
                )
    return notes


def _note_state(note: Path) -> tuple[str, str]:
    """The state of a request, and the error's text if it was refused (docs/FORMAT.md)."""
    if note.suffix != ".own":
        return "waits" if note.suffix == ".ask" else "left over", ""
    try:
        with note.open("rb") as file:
            data = file.read(_NOTE_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        return "cannot be read", str(error)
    if len(data) < 80 or data[:8] != b"QSINBOX1":
        return "damaged", ""
    kind, _, status = struct.unpack_from("<3I", data, 8)
    if kind != 2:
        return "begun", ""
    if status == 0:
        return "adopted", ""
    (length,) = struct.unpack_from("<I", data, 72)
    return "refused", data[76 : 76 + length].decode(errors="replace")


def _count(folder: Path) -> tuple[int, int]:
    """Files in a directory, and their bytes on the disk; 0 if it is missing."""
    count = size = 0
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # a checkpoint removed it
                if entry.is_file():
                    size += entry.stat().st_blocks * 512
                    count += 1
    return count, size

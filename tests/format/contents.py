"""What is in a store, in a form that JSON keeps: compared with what was written down long ago."""

import json
import os
import shutil
import tarfile
import time
import warnings
from pathlib import Path
from typing import Any

import pyqstore
from pyqstore import _core
from pyqstore.codec import crc32c

SMALL = {
    "journal_file_bytes": "64KiB",
    "message_file_bytes": "64KiB",
    "checkpoint_bytes": 0,
    "checkpoint_interval": None,
}
SHORT = 40
_ROW = {"offset", "timestamp", "body", "exchange", "routing_key"}
"""Columns of a stream that are no properties."""


def pack(store: Path, archive: Path) -> None:
    """A store as an archive that holds nothing of who made it."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for path in sorted(store.rglob("*")):
            tar.add(path, path.relative_to(store).as_posix(), recursive=False, filter=plain)


def unpack(archive: Path, store: Path) -> Path:
    """The store of an archive, with the modes that the engine asks for, whatever the umask is."""
    store.mkdir()
    store.chmod(0o700)
    with tarfile.open(archive) as tar:
        for member in tar:
            path = store / member.name
            if member.isdir():
                path.mkdir()
                path.chmod(0o700)
                continue
            file = tar.extractfile(member)
            assert file is not None
            path.write_bytes(file.read())
            path.chmod(0o600)
    return store


def files_of(store: Path) -> dict[str, bytes]:
    return {
        path.relative_to(store).as_posix(): path.read_bytes()
        for path in store.rglob("*")
        if path.is_file()
    }


def _text(body: bytes) -> str:
    if len(body) <= SHORT:
        return body.decode("latin-1")
    return f"{body[:32].decode('latin-1')}... {len(body)} bytes, {crc32c(body):08x}"


def _message(message: pyqstore.Message) -> list[Any]:
    return [
        _text(message.body),
        message.exchange,
        message.routing_key,
        message.redelivered,
        message.properties.encoded.hex(),
    ]


def _drain(store: pyqstore.Store, queue: str, damaged: list[str]) -> list[list[Any]]:
    found = []
    with store.channel() as channel:
        while True:
            try:
                message = channel.basic_get(queue)
            except pyqstore.StoreCorrupt as error:
                damaged.append(f"{queue}: {error.path}")
                continue
            if message is None:
                return found
            found.append(_message(message))
            message.ack()


def _delayed(store: pyqstore.Store, queue: str) -> list[str]:
    return [
        _text(body.as_py())
        for batch in store.browse(queue, damaged=lambda _error: None)
        for body, is_delayed in zip(batch["body"], batch["delayed"], strict=True)
        if is_delayed.as_py()
    ]


def streams_of(store: pyqstore.Store) -> dict[str, pyqstore.Stream]:
    found = {}
    for name in sorted(store.queues()):
        try:
            found[name] = store.stream(name)
        except pyqstore.PreconditionFailed:
            continue  # a queue
    return found


def _look_stream(store: pyqstore.Store, stream: pyqstore.Stream) -> dict[str, Any]:
    status = stream.status()
    return {
        "first": status.first,
        "next": status.next,
        "segments": status.segments,
        "groups": {
            group.decode(): int.from_bytes(offset, "little")
            for group, offset in sorted(_core.stream_cursors(store, stream.name))
        },
    }


def _read_stream(store: pyqstore.Store, stream: pyqstore.Stream) -> dict[str, Any]:
    """All that is in it but the times, which only ascend, and where each group goes on."""
    rows = stream.read("first").read_all().to_pylist()
    times = [row["timestamp"] for row in rows]
    assert times == sorted(times)
    told = _look_stream(store, stream)
    return {
        "rows": [
            [
                row["offset"],
                _text(row["body"]),
                row["exchange"],
                row["routing_key"],
                {
                    name: value
                    for name, value in row.items()
                    if name not in _ROW and value is not None
                },
            ]
            for row in rows
        ],
        "groups": told["groups"],
    }


def with_streams(told: dict[str, Any], streams: dict[str, Any]) -> dict[str, Any]:
    """Stores from before there were streams have nothing written down of them."""
    return {**told, "streams": streams} if streams else told


def _settled(store: pyqstore.Store, queues: list[str]) -> None:
    """What has expired since the store was written leaves it, and is due what was due."""
    store.accept_clock()
    before: object = None
    while before != (before := [store.queue_status(name) for name in queues]):
        time.sleep(0.1)


def look(path: Path) -> dict[str, Any]:
    """Without changing anything: names, and how many messages there are to see."""
    with pyqstore.open(path, read_only=True, create=False) as store:
        streams = streams_of(store)
        told = {
            "exchanges": {
                info.name: [info.type, info.auto_delete, info.internal, info.arguments]
                for info in store.exchanges().values()
                if info.name and not info.name.startswith("amq.")
            },
            "bindings": sorted(
                (
                    [bound.source, bound.destination, bound.routing_key, bound.arguments]
                    for bound in store.bindings()
                ),
                key=lambda binding: (binding[:3], str(binding[3])),
            ),
            "queues": {
                name: store.queue_status(name).lazy
                for name in sorted(store.queues())
                if name not in streams
            },
        }
        looked = {name: _look_stream(store, stream) for name, stream in streams.items()}
        return with_streams(told, looked)


def key_of(name: str) -> str:
    """A key of transactions: those that shall fill files are long."""
    return name.ljust(900, ".") if name.startswith("key ") else name


def drain(path: Path, keys: list[str], forgotten: list[str], **options: Any) -> dict[str, Any]:
    """Opened for writing, all that is in it, taken out in order; and which keys it knows."""
    damaged: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pyqstore.ClockJump)
        store = pyqstore.open(path, create=False, **SMALL, **options)
    with store:
        report = store.recovery_report
        streams = streams_of(store)
        queues = sorted(set(store.queues()) - set(streams))
        _settled(store, queues)
        told = {
            "queues": {name: _drain(store, name, damaged) for name in queues},
            "delayed": {name: delayed for name in queues if (delayed := _delayed(store, name))},
            "known": [key for key in keys + forgotten if store.transaction_known(key_of(key))],
            "damaged": damaged,
            "torn": report.torn_bytes > 0,
            "lost": [report.lost_ranges, report.lost_segments, report.lost_messages],
        }
        read = {name: _read_stream(store, stream) for name, stream in streams.items()}
        return with_streams(told, read)


def plain(value: Any) -> Any:
    """As it is when it has been in a JSON file."""
    return json.loads(json.dumps(value, default=str, sort_keys=True))


def copy(store: Path, to: Path) -> Path:
    shutil.copytree(store, to)
    os.chmod(to, 0o700)
    return to

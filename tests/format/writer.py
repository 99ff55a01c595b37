"""What the plans of write_v1.py write with: an open store, and what was put into it."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from contents import SMALL

import pyqstore
from pyqstore import _core

PERSISTENT = pyqstore.Properties(delivery_mode=2)
YEARS = 50 * 365 * 86400.0
Truth = dict[str, list[str]]
"""The bodies of queues, in order: how each begins."""


def body(name: str, size: int = 0) -> bytes:
    """A body that begins with its name; what follows is the same each time."""
    head = name.encode() + b"|"
    return (head * (size // len(head) + 1))[: max(size, len(head))]


class Writer:
    """An open store, and what the plan has put into it."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.options = {**SMALL, "segment_entries": 64, "sync": "none", **options}
        self.truth: Truth = {}
        self.streams: Truth = {}
        self.groups: dict[str, dict[str, int]] = {}
        self.keys: list[str] = []
        self.forgotten: list[str] = []
        self.asked: list[_core.Request] = []
        self.open()

    def open(self) -> None:
        self.store = pyqstore.open(self.path, **self.options)
        self.channel = self.store.channel()
        self.channel.confirm_select()

    def close(self) -> None:
        self.channel.close()
        self.store.close()

    def reopen(self) -> None:
        self.close()
        self.open()

    def kill(self) -> None:
        """Ends the process where it stands."""
        os.kill(os.getpid(), signal.SIGKILL)

    def declare(self, queue: str, **arguments: Any) -> None:
        named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        self.channel.queue_declare(queue, durable=True, arguments=named)
        self.truth.setdefault(queue, [])

    def publish(
        self,
        name: str,
        size: int = 0,
        exchange: str = "",
        key: str = "",
        to: list[str] | None = None,
        delay: float | None = None,
        **properties: Any,
    ) -> None:
        properties.setdefault("delivery_mode", 2)
        self.channel.basic_publish(
            exchange, key, body(name, size), pyqstore.Properties(**properties), delay=delay
        )
        for queue in [key] if to is None else to:
            self.truth[queue].append(name)

    def batch(self, names: list[str], size: int, key: str, **columns: Any) -> None:
        """To a queue, or to what an exchange of that name leads to."""
        self.channel.publish_batch(
            pa.table({"body": [body(name, size) for name in names], **columns}), routing_key=key
        )
        self.truth[key].extend(names)

    def declare_stream(self, stream: str, **arguments: int) -> pyqstore.Stream:
        """Its truth is all that was ever published: how much of it is kept the plan waits for."""
        declared = self.store.stream(stream, **arguments)
        self.streams.setdefault(stream, [])
        self.groups.setdefault(stream, {})
        return declared

    def append(self, stream: str, name: str, size: int = 0, **options: Any) -> None:
        self.store.stream(stream).publish(body(name, size), **options)
        self.streams[stream].append(name)

    def append_batch(self, stream: str, names: list[str], size: int = 0, **columns: Any) -> None:
        rows = pa.table({"body": [body(name, size) for name in names], **columns})
        self.store.stream(stream).publish_batch(rows)
        self.streams[stream].extend(names)

    def commit_offset(self, stream: str, group: str, offset: int) -> None:
        self.channel._commit_offset(stream, group, offset)
        self.groups[stream][group] = offset

    def wait_for(self, files: str) -> None:
        """Make checkpoints until there are such files, which the pager makes in its own time."""
        for _ in range(200):
            self.store.checkpoint()
            if any(self.path.glob(files)):
                return
            time.sleep(0.05)
        raise AssertionError(f"no {files}")

    def durable(self) -> None:
        assert self.channel.wait_for_confirms(60)
        self.store.sync()


def write_truth(writer: Writer) -> None:
    """For the process that waits for this one."""
    truth = {
        "queues": writer.truth,
        "streams": writer.streams,
        "groups": writer.groups,
        "keys": writer.keys,
        "forgotten": writer.forgotten,
    }
    writer.path.with_suffix(".truth").write_text(json.dumps(truth), encoding="utf-8")

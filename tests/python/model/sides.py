"""Two stores that must give the same answers: one that pages, and one that never does."""

import shutil
from pathlib import Path
from typing import Any

import pyqstore

from .copies import copy_store

CALM: dict[str, Any] = {
    "memory_budget": "1GiB",
    "checkpoint_bytes": 0,
    "checkpoint_interval": None,
    "embed_below": "1MiB",
}


def paging(segment_entries: int, embed_below: int) -> dict[str, Any]:
    """Options with tiny segments, a tiny budget and frequent checkpoints."""
    return {
        "memory_budget": "64KiB",
        "segment_entries": segment_entries,
        "embed_below": embed_below,
        "checkpoint_bytes": "128KiB",
        "checkpoint_interval": None,
    }


def row_of(message: pyqstore.Message) -> dict[str, Any]:
    """All that a message tells."""
    return {
        "queue": message.queue,
        "delivery_tag": message.delivery_tag,
        "body": message.body,
        "redelivered": message.redelivered,
        "delivery_count": message.delivery_count,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "properties": message.properties,
    }


class Side:
    """One of the two stores, and two channels."""

    def __init__(self, folder: str, name: str, options: dict[str, Any]) -> None:
        self.folder = Path(folder)
        self.path = self.folder / f"{name}-0"
        self.name = name
        self.copies = 0
        self.options = {
            "sync": "none",
            "journal_file_bytes": "64KiB",
            "message_file_bytes": "64KiB",
            **options,
        }
        self.open()

    def open(self) -> None:
        self.store = pyqstore.open(self.path, **self.options)
        self.channels = [self.store.channel(), self.store.channel()]

    def close(self) -> None:
        self.store.close()
        for channel in self.channels:
            channel.close()

    def copy(self) -> None:
        """Go on with a copy of the directory of the open store, as after a SIGKILL."""
        self.store.sync()
        self.copies += 1
        copy = self.folder / f"{self.name}-{self.copies}"
        copy_store(self.path, copy)
        self.close()
        shutil.rmtree(self.path)
        self.path = copy
        assert pyqstore.verify(self.path).damage == ()
        self.open()

"""Stores for the works to measure: new, with one durable queue, ready to be measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Unpack

import pyqstore

QUEUE = "q"
PERSISTENT = pyqstore.Properties(delivery_mode=2)
_SETTLE_SECONDS = 0.15


@contextmanager
def opened_store(
    directory: Path, **options: Unpack[pyqstore.StoreOptions]
) -> Iterator[pyqstore.Store]:
    """A new store.  It makes its next journal file behind the scenes: that is waited for."""
    with pyqstore.open(directory / "store", **options) as store:
        yield store


@contextmanager
def opened(directory: Path, **options: Unpack[pyqstore.StoreOptions]) -> Iterator[pyqstore.Channel]:
    """A channel in confirm mode on a new store with one durable queue, "q"."""
    with opened_store(directory, **options) as store, store.channel() as channel:
        channel.queue_declare(QUEUE, durable=True)
        channel.confirm_select()
        time.sleep(_SETTLE_SECONDS)
        yield channel

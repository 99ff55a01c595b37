"""Stores for the workloads to measure: new, with one durable queue, ready to be measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Unpack

import pyqstore

from .loads import QUEUE, publish_rows

_QUIET_SECONDS = 0.06
_LOOK_SECONDS = 0.02
# A journal begins with a file of 1 MiB; its files have their full size when so much is written.
_FIRST_FILE_BYTES = 700_000
_RECORD_BYTES = 64
_WARM_BYTES = 22 << 20
_WARM_BODY_BYTES = 2000


@contextmanager
def opened_store(
    directory: Path, **options: Unpack[pyqstore.StoreOptions]
) -> Iterator[pyqstore.Store]:
    """A new store."""
    with pyqstore.open(directory / "store", **options) as store:
        yield store


@contextmanager
def opened(
    directory: Path,
    messages: int = 1,
    body_bytes: int = 0,
    **options: Unpack[pyqstore.StoreOptions],
) -> Iterator[pyqstore.Channel]:
    """A channel on a new store, prepared for so many messages."""
    with (
        opened_store(directory, **options) as store,
        prepared(store, messages, body_bytes) as channel,
    ):
        yield channel


def prepared(store: pyqstore.Store, messages: int = 1, body_bytes: int = 0) -> pyqstore.Channel:
    """A channel in confirm mode, and one durable queue, "q".

    Where so many messages do not fit in the small file that a journal begins with, its files have
    their full size, as in a store that is at work for a while: growing is not what is measured.
    """
    channel = store.channel()
    channel.queue_declare(QUEUE, durable=True)
    channel.confirm_select()
    if messages * (body_bytes + _RECORD_BYTES) > _FIRST_FILE_BYTES:
        publish_rows(channel, _WARM_BYTES // _WARM_BODY_BYTES, _WARM_BODY_BYTES)
        channel.queue_purge(QUEUE)
    settle(Path(store.path))
    return channel


def settle(store: Path) -> None:
    """Wait until a store has made its next journal file, which it does behind the scenes."""
    wait_until_quiet(partial(_journal, store), _QUIET_SECONDS)


def wait_until_quiet(look: Callable[[], object], seconds: float) -> None:
    """Wait until what is looked at has been the same for so long."""
    before, since = look(), time.monotonic()
    while time.monotonic() - since < seconds:
        time.sleep(_LOOK_SECONDS)
        now = look()
        if now != before:
            before, since = now, time.monotonic()


def _journal(store: Path) -> set[tuple[str, int]]:
    """Files by name, with the room they take.  One that goes meanwhile is not there."""
    found = set()
    for file in (store / "journal").iterdir():
        with suppress(FileNotFoundError):
            found.add((file.name, file.stat().st_blocks))
    return found


def disk_bytes(path: Path) -> int:
    """Bytes that the files below occupy.  One that goes meanwhile counts as gone."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total

"""Looks at a store that nobody uses: verifies it, browses it, opens it, and hands itself every
message once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyqstore
from pyqstore.store import StoreOptions

from .messages import Copy, body_of, copy_of, priority_of
from .queues import DEAD, LOG, WORK_QUEUES, kind_of

_OPTIONS: StoreOptions = {
    "create": False,
    "journal_file_bytes": "64KiB",
    "message_file_bytes": "64KiB",
}
_SECONDS = 60.0  # a wait that only a fault reaches


class Holding(NamedTuple):
    """Where a copy is, and what it died of first."""

    queue: str
    reason: str


@dataclass
class Found:
    """What is in a store."""

    copies: dict[Copy, list[Holding]] = field(default_factory=dict)
    order: dict[str, list[str]] = field(default_factory=dict)
    """The names in each queue, in the order in which it delivers them."""
    keys: dict[str, bool] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    torn_bytes: int = 0
    lost_bytes: int = 0


def inspect(path: Path, keys: Sequence[str] = (), *, was_open: bool = True) -> Found:
    """What is in the store at ``path``.  All is back in its place afterwards.

    A store that no worker had open need not be there yet.
    """
    found = Found()
    try:
        verified = pyqstore.verify(path)
        found.wrong += [f"verify: {damage}" for damage in verified.damage]
        shown, known = _read(path, keys)
        with pyqstore.open(path, **_OPTIONS) as store:
            found.torn_bytes = store.recovery_report.torn_bytes
            found.lost_bytes = store.recovery_report.lost_bytes
            found.keys = {key: store.transaction_known(key) for key in keys}
            with store.channel() as channel:
                _take_all(store, channel, found)
        for queue, names in shown.items():
            if names != found.order[queue]:
                found.wrong.append(f"{queue}: recovery gives other messages than browse shows")
        if known != found.keys:
            found.wrong.append("recovery knows other transactions than a reader does")
    except pyqstore.StoreNotFound as error:
        if was_open:
            found.wrong.append(f"the store is not there: {error}")
    except pyqstore.StoreError as error:
        found.wrong.append(f"{type(error).__name__}: {error}")
    return found


def _queues_of(store: pyqstore.Store) -> list[str]:
    """Those whose messages are taken; the stream's are in its work queues."""
    return [queue for queue in store.queues() if queue != LOG]


def _read(path: Path, keys: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, bool]]:
    """As a reader shows it: names in the queues that messages leave only to consumers, and keys."""
    shown = {}
    with pyqstore.open(path, create=False, read_only=True) as store:
        for queue in _queues_of(store):
            # Of a stream a reader shows what is in files: work queues are not shown.
            if kind_of(queue).keeps and queue != DEAD and queue not in WORK_QUEUES:
                batches = [batch.column("message_id").to_pylist() for batch in store.browse(queue)]
                shown[queue] = [str(name) for batch in batches for name in batch]
        return shown, {key: store.transaction_known(key) for key in keys}


def _take_all(store: pyqstore.Store, channel: pyqstore.Channel, found: Found) -> None:
    """Dead letters come last: by then nothing in our hands can die, and the rest has died."""
    homes = [queue for queue in _queues_of(store) if queue != DEAD]
    for queue in homes:
        found.order[queue] = []
        _take(channel, queue, found)
    end = time.monotonic() + _SECONDS
    for queue in homes:
        while (status := store.queue_status(queue))["messages_ready"] or (
            status["messages_unacked"] != len(found.order[queue])
        ):
            if time.monotonic() > end:
                found.wrong.append(f"{queue} does not come to rest: {status}")
                return
            _take(channel, queue, found)
            time.sleep(0.002)
    if DEAD in store.queues():
        found.order[DEAD] = []
        _take(channel, DEAD, found)


def _take(channel: pyqstore.Channel, queue: str, found: Found) -> None:
    while (message := channel.basic_get(queue)) is not None:
        name, headers = message.properties.message_id, message.properties.headers or {}
        if name is None or message.body != body_of(name):
            found.wrong.append(f"{queue}: {name!r} has a body that is not its own")
            continue
        if message.properties.priority != priority_of(name):
            found.wrong.append(f"{queue}: {name!r} has the priority {message.properties.priority}")
        copy = copy_of(queue, name, headers)
        reason = str(headers.get("x-first-death-reason", ""))
        found.copies.setdefault(copy, []).append(Holding(queue, reason))
        found.order[queue].append(name)

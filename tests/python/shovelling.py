"""What tests of shovels share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import pyqstore
from pyqstore import Properties, Shovelled, _core, shovel
from pyqstore.shovelling.ends import Item

IDLE = 0.3
"""For sources that have everything already: nothing that comes later decides a test."""

FULL = Properties(
    content_type="text/plain",
    content_encoding="utf-8",
    headers={"small": 1, "text": "ä", "raw": b"\xff", "list": [1, None], "ratio": 0.5},
    delivery_mode=2,
    priority=3,
    correlation_id="c",
    reply_to="r",
    expiration="360000",
    message_id="m",
    timestamp=1_700_000_000,
    type="t",
    user_id="guest",
    app_id="a",
)
"""All of them, but for cluster_id."""


def put(store: pyqstore.Store, name: str, bodies: list[bytes]) -> None:
    """Into a queue, which is declared."""
    store.queue(name).put_many(bodies)


def bodies(store: pyqstore.Store, name: str) -> list[bytes]:
    """Of all messages of a queue, which are taken."""
    with store.channel() as channel:
        found = []
        while (message := channel.basic_get(name, auto_ack=True)) is not None:
            found.append(message.body)
        return found


def at(store: pyqstore.Store, name: str) -> str:
    """A queue's or a stream's address."""
    return f"{store.path}#{name}"


def table(rows: list[bytes]) -> Any:
    """For ``publish_batch``."""
    import pyarrow

    return pyarrow.table({"body": rows})


@contextmanager
def working(source: str, target: str, **more: Any) -> Iterator[Future[Shovelled]]:
    """A shovel in a thread of its own; it is stopped at the end."""
    stop = more.pop("stop", None) or threading.Event()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(shovel, source, target, stop=stop, **more)
        try:
            yield future
        finally:
            stop.set()


def drained(queue: pyqstore.Queue, count: int) -> list[bytes]:
    """Bodies of so many messages, which are taken one by one."""
    found: list[bytes] = []
    while len(found) < count:
        receipt = queue.get(timeout=60)
        assert receipt is not None
        found.append(receipt.body)
        receipt.ack()
    return found


def taken_now(queue: pyqstore.Queue) -> list[bytes]:
    """Bodies of the messages that are there, which are taken."""
    found: list[bytes] = []
    with suppress(pyqstore.Empty):
        while True:
            with queue.get(timeout=0) as message:
                found.append(message.body)
    return found


def changing(monkeypatch: pytest.MonkeyPatch, change: Callable[[Item], Item]) -> None:
    """Sources in a store read what ``change`` makes of each message; it may raise."""

    class Changing(_core.ItemReader):
        def item(self, message: pyqstore.Message) -> Item:
            return change(super().item(message))

        def take(self, items: list[Item], most: int, bytes_most: int) -> None:
            before = len(items)
            super().take(items, most, bytes_most)
            taken = items[before:]
            del items[before:]
            items.extend(map(change, taken))

    monkeypatch.setattr(_core, "ItemReader", Changing)


def refusing(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    """Stores refuse messages with this body, but for dead letters."""

    class Refusing(_core.ItemWriter):
        def __init__(
            self,
            _channel: pyqstore.Channel,
            items: list[Item],
            indices: list[int],
            others: Container[int],
            *_: object,
        ) -> None:
            self._given = items, indices, others

        def write(self, exchange: str) -> bool:
            items, indices, others = self._given
            for at, index in enumerate(indices):
                if items[index].body == body and index not in others:
                    self.at = at
                    raise pyqstore.PreconditionFailed(406, "it is refused")
            return super().write(exchange)

    monkeypatch.setattr(_core, "ItemWriter", Refusing)

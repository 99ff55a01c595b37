"""What tests of shovels share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyqstore
from pyqstore import Shovelled, shovel

IDLE = 0.3
"""For sources that have everything already: nothing that comes later decides a test."""


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

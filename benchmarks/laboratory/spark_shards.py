"""Stores that are served through Arrow Flight, for rows that are dealt to them by a key."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyqstore
from pyqstore.bench.loads import QUEUE

from .rivals.server import LOOPBACK, Server, free_port

__all__ = ["count_of", "served"]


@contextmanager
def served(directory: Path, count: int) -> Iterator[str]:
    """Run ``count`` servers, each with an empty queue; their URLs."""
    urls = []
    with ExitStack() as running:
        for number in range(count):
            own = directory / str(number)
            own.mkdir()
            with pyqstore.open(own / "store") as store, store.channel() as channel:
                channel.queue_declare(QUEUE, durable=True)
            port, server = free_port(), Server(own)
            running.callback(server.stop)
            # -P: the installed package, whatever lies in the current directory.
            command = [sys.executable, "-P", "-m", "pyqstore", "serve", str(own / "store")]
            server.run([*command, "--flight", f"{LOOPBACK}:{port}"], port)
            urls.append(f"grpc://{LOOPBACK}:{port}")
        yield ",".join(urls)


def count_of(directory: Path, count: int) -> int:
    """Messages that are there when the servers have ended."""
    found = 0
    for number in range(count):
        with pyqstore.open(directory / str(number) / "store", read_only=True) as store:
            found += store.queue_status(QUEUE).messages_ready
    return found

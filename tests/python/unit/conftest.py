"""One store in a directory of its own, a channel on it, and small helpers."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore import aio

from ..owning import Owner
from ..proxy import Proxy
from ..support import PERSISTENT
from .http_asking import Asking, asked


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(path: Path) -> Iterator[pyqstore.Store]:
    with pyqstore.open(path, journal_file_bytes="1MiB") as store:
        yield store


@pytest.fixture
def other(tmp_path: Path) -> Iterator[pyqstore.Store]:
    """Another store, such as the one that a shovel leads to."""
    with pyqstore.open(tmp_path / "other") as store:
        yield store


@pytest.fixture
def broker(other: pyqstore.Store) -> str:
    """A broker's URL: the store ``other`` is behind it."""
    return f"amqp://guest:guest@{other.listen('127.0.0.1:0').address}"


@pytest.fixture
def proxy(other: pyqstore.Store) -> Iterator[Proxy]:
    """A way to the broker, whose store is ``other``, that can be cut."""
    proxy = Proxy(int(other.listen("127.0.0.1:0").address.rpartition(":")[2]))
    yield proxy
    proxy.close()


@pytest.fixture
def ask(store: pyqstore.Store) -> Iterator[Asking]:
    """A guest who asks the store over HTTP."""
    with asked(store) as asking:
        yield asking


@pytest.fixture
def channel(store: pyqstore.Store) -> Iterator[pyqstore.Channel]:
    with store.channel() as channel:
        yield channel


@pytest.fixture
def queue(channel: pyqstore.Channel) -> str:
    return channel.queue_declare("q", durable=True).queue


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """A folder for staged files: nobody else writes to it."""
    folder = tmp_path / "stage"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def bodies() -> Callable[[pyqstore.Channel, str], list[bytes]]:
    """Take and acknowledge everything ready in a queue."""

    def take(channel: pyqstore.Channel, queue: str) -> list[bytes]:
        taken = []
        while (message := channel.basic_get(queue, auto_ack=True)) is not None:
            taken.append(message.body)
        return taken

    return take


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run code in another interpreter; its arguments are strings."""

    def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", code, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def run_aio(path: Path) -> Callable[..., None]:
    """Run a coroutine function of a store and a channel with a durable queue "q"."""

    def run(work: Callable[[aio.Store, aio.Channel], Awaitable[None]], **options: Any) -> None:
        async def main() -> None:
            options.setdefault("journal_file_bytes", "1MiB")
            async with await aio.open(path, **options) as store, await store.channel() as channel:
                await channel.queue_declare("q", durable=True)
                async with asyncio.timeout(60):
                    await work(store, channel)

        asyncio.run(main(), debug=False)

    return run


@pytest.fixture
def fill_aio() -> Callable[..., Awaitable[None]]:
    """Publish persistent messages to "q": numbers, with something behind them."""

    async def fill(channel: aio.Channel, count: int, body: bytes = b"") -> None:
        for i in range(count):
            await channel.basic_publish("", "q", b"%d" % i + body, PERSISTENT)

    return fill


@pytest.fixture
def owner(path: Path) -> Iterator[Owner]:
    owner = Owner(path)
    yield owner
    owner.kill()

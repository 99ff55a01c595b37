"""One store in a directory of its own, a channel on it, and small helpers."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore import aio, flight

from ..owning import Owner
from ..proxy import Proxy
from .either import Loop, Synchronous
from .http_asking import Asking, asked


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("faces")
    if mark and "in_face" in metafunc.fixturenames:
        metafunc.parametrize("in_face", mark.args, indirect=True)


@pytest.fixture
def in_face(request: pytest.FixtureRequest) -> Iterator[Callable[[pyqstore.Store], Any]]:
    """The face of a store that a test uses: of the mark ``faces``, or the synchronous one."""
    if getattr(request, "param", "sync") == "sync":
        yield lambda store: store
        return
    with closing(Loop()) as loop:
        yield lambda store: Synchronous(loop, aio.Store(store))


@pytest.fixture
def store(path: Path, in_face: Callable[[pyqstore.Store], Any]) -> Iterator[pyqstore.Store]:
    with pyqstore.open(path, journal_file_bytes="1MiB") as store:
        yield in_face(store)


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
def flight_server(store: pyqstore.Store) -> Iterator[flight.FlightListener]:
    with flight.serve(store) as server:
        yield server


@pytest.fixture
def remote(flight_server: flight.FlightListener) -> Iterator[flight.Client]:
    """A client of the store through Arrow Flight."""
    with pyqstore.connect(flight_server.address) as client:
        yield client


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
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of the asynchronous fixtures, and of a test that is a coroutine function."""
    with asyncio.Runner(debug=False) as runner:
        yield runner


def pytest_itemcollected(item: pytest.Item) -> None:
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        item.fixturenames.append("runner")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function, with a limit that only a fault reaches."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}

    async def run() -> None:
        async with asyncio.timeout(60) as limit:
            await test(**arguments)
        assert not limit.expired()  # a test that expects a cancellation catches that of the limit

    pyfuncitem.funcargs["runner"].run(run())
    return True


@pytest.fixture
def aio_store(
    path: Path, runner: asyncio.Runner, request: pytest.FixtureRequest
) -> Iterator[aio.Store]:
    """An asynchronous store, opened with the options of the mark ``options``."""
    mark = request.node.get_closest_marker("options")
    options: dict[str, Any] = {"journal_file_bytes": "1MiB"} | (mark.kwargs if mark else {})
    store = runner.run(aio.open(path, **options).__aenter__())
    yield store
    runner.run(store.close())


@pytest.fixture
def aio_channel(aio_store: aio.Store, runner: asyncio.Runner) -> Iterator[aio.Channel]:
    """A channel of ``aio_store``, with a durable queue "q"."""

    async def make() -> aio.Channel:
        channel = await aio_store.channel()
        await channel.queue_declare("q", durable=True)
        return channel

    channel = runner.run(make())
    yield channel
    runner.run(channel.close())


@pytest.fixture
def owner(path: Path) -> Iterator[Owner]:
    owner = Owner(path)
    yield owner
    owner.kill()

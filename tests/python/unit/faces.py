"""The public classes of all faces, by introspection, and every wait of theirs in one table.

A wait that the table does not have fails ``test_every_wait_is_in_the_table``: what is tried over
the table is tried with a new verb by itself.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pyqstore
from pyqstore import aio, flight, session
from pyqstore.aio import session as aio_session

from ..support import wait_until

FACES = {
    "pyqstore": pyqstore,
    "aio": aio,
    "session": session,
    "aio.session": aio_session,
    "flight": flight,
}
_WAITING = {"timeout", "inactivity_timeout", "follow", "stop"}
_ENDLESS = {"start_consuming", "work", "listener"}
_ITERATING = {"Queue": "__iter__", "aio.Queue": "__aiter__"}


def classes() -> Iterator[tuple[str, type]]:
    """Name and class of all that the faces export, but exceptions, tuples and dictionaries."""
    for face, module in FACES.items():
        for name in module.__all__:
            found = getattr(module, name)
            if not inspect.isclass(found) or issubclass(found, BaseException | tuple | dict):
                continue
            yield (name if face == "pyqstore" else f"{face}.{name}"), found


def verbs(kind: type) -> Iterator[tuple[str, Any]]:
    """Name and function or property of what is public in a class."""
    for name in dir(kind):
        if not name.startswith("_"):
            yield name, inspect.getattr_static(kind, name)


def waits_by_introspection() -> set[str]:
    """Verbs of all faces that may wait for a message, a row or an event."""
    found = set()
    for of, kind in classes():
        for name, verb in verbs(kind):
            called = verb.__func__ if isinstance(verb, classmethod | staticmethod) else verb
            given: set[str] = set()
            if callable(called):
                with suppress(ValueError):  # of Cython
                    given = set(inspect.signature(called).parameters)
            if given & _WAITING or name in _ENDLESS:
                found.add(f"{of}.{name}")
        if of in _ITERATING:
            found.add(f"{of}.{_ITERATING[of]}")
    return found


ANOTHER_WAIT = {
    "Channel.wait_for_confirms": "for a commit",
    "aio.Channel.wait_for_confirms": "for a commit",
    "Receipt.wait": "for a commit",
    "aio.Receipt.wait": "for a commit",
    "Listener.close": "for clients",
    "flight.FlightListener.close": "for clients",
    "Trace.next": "for a step of any message",
}
"""Verbs with a timeout that wait for no queue and no stream."""


class Place(NamedTuple):
    """What a wait is about."""

    store: Any
    """The store, an asynchronous one for the waits of asyncio."""
    name: str
    """Of the queue or the stream, which is there."""
    told: Callable[[object], object]
    """For listeners."""
    ready: Callable[[], object]
    """To be called when everything is made, just before the wait."""


Call = Callable[[Place], Awaitable[Any]]
"""Of both faces: what a verb returns is ``waited`` for."""


class Wait(NamedTuple):
    """A verb that waits for ever for a queue or a stream."""

    verb: str
    call: Call
    of_stream: bool = False
    ends: bool = False
    """It ends without an exception when its queue is deleted, as in pika."""
    case: str = ""

    @property
    def name(self) -> str:
        """Of a test."""
        return f"{self.verb} {self.case}".strip()

    @property
    def is_async(self) -> bool:
        """Whether it is a verb of asyncio's face."""
        return self.verb.startswith("aio.")

    def run(self, place: Place) -> Any:
        """Wait, in this thread."""

        async def main() -> Any:
            store = aio.Store(place.store) if self.is_async else place.store
            return await self.call(place._replace(store=store))

        if self.is_async:
            return asyncio.run(main())
        try:
            main().send(None)  # a synchronous verb awaits nothing
        except StopIteration as end:
            return end.value
        raise AssertionError(f"{self.verb} awaits")

    def declare(self, store: pyqstore.Store, name: str) -> Any:
        """What it waits for."""
        return store.stream(name) if self.of_stream else store.queue(name)


async def waited(result: Any) -> Any:
    """What a verb of either face returns."""
    return await result if inspect.isawaitable(result) else result


async def everything(rows: Any) -> list[Any]:
    """What an iterator of either face gives."""
    return [row async for row in rows] if isinstance(rows, AsyncIterable) else list(rows)


# Of channels, queues and streams.


async def next_delivery(at: Place) -> Any:
    channel = await waited(at.store.channel())
    await waited(channel.basic_qos(5))
    tag = await waited(channel.basic_consume(at.name))
    at.ready()
    return await waited(channel.next_delivery(tag))


async def consume(at: Place) -> Any:
    messages = (await waited(at.store.channel())).consume(at.name)
    await waited((await waited(at.store.queue(at.name))).put(b""))
    # It is a consumer from here on.
    await (anext(messages) if isinstance(messages, AsyncIterator) else waited(next(messages)))
    at.ready()
    return await everything(messages)


async def get_batch(at: Place) -> Any:
    channel = await waited(at.store.channel())
    at.ready()
    return await waited(channel.get_batch(at.name, timeout=None))


def events(verb: str, *arguments: None) -> Call:
    """Wait in a verb that has callbacks called."""

    async def call(at: Place) -> Any:
        channel = await waited(at.store.channel())
        channel.add_cancel_listener(lambda tag: at.told(at.name))
        await waited(channel.basic_consume(at.name, at.told))
        at.ready()
        return await waited(getattr(channel, verb)(*arguments))

    return call


async def get(at: Place) -> Any:
    queue = await waited(at.store.queue(at.name))
    at.ready()
    return await waited(queue.get())


async def iterate(at: Place) -> Any:
    queue = await waited(at.store.queue(at.name))
    at.ready()
    return await everything(queue)


async def work(at: Place) -> Any:
    queue = await waited(at.store.queue(at.name))
    at.ready()
    workers = "tasks" if isinstance(queue, aio.Queue) else "threads"
    return await waited(queue.work(at.told, **{workers: 2}))


async def read(at: Place) -> Any:
    stream = await waited(at.store.stream(at.name))
    at.ready()
    return await everything(stream.read(follow=True))


async def poll(at: Place) -> Any:
    consumer = await waited(at.store.stream_consumer(at.name, "g"))
    at.ready()
    return await waited(consumer.poll(timeout=None))


async def poll_two(at: Place) -> Any:
    await waited(at.store.stream("other"))
    consumer = await waited(at.store.stream_consumer([at.name, "other"], "g"))
    at.ready()
    return await waited(consumer.poll(timeout=None))


async def poll_again(at: Place) -> Any:
    consumer = await waited(at.store.stream_consumer(at.name, "g"))
    at.ready()
    try:
        return await waited(consumer.poll(timeout=None))
    except pyqstore.NotFound:
        return await waited(consumer.poll(timeout=None))


# Of sessions.


async def connected(at: Place) -> Any:
    """A connection of the store's face."""
    module = aio_session if isinstance(at.store, aio.Store) else session
    return await waited(module.connect(at.store))


def put_nothing(at: Place, count: int) -> None:
    """So many empty messages, in this thread."""
    store = at.store._store if isinstance(at.store, aio.Store) else at.store
    store.queue(at.name).put_many([b""] * count)


def receive(mode: str, prefetch: int, count: int = 0) -> Call:
    """Wait behind ``count`` messages that are not acknowledged, or all that there may be."""

    async def call(at: Place) -> Any:
        its = await waited((await connected(at)).session(mode))
        consumer = await waited(its.consumer(its.queue(at.name), prefetch=prefetch))
        put_nothing(at, count)
        while count and await waited(consumer.receive(timeout=0)) is not None:
            pass
        at.ready()
        return await waited(consumer.receive())

    return call


def listen(mode: str, prefetch: int, count: int = 0) -> Call:
    """A listener that acknowledges nothing."""

    async def call(at: Place) -> Any:
        connection = await connected(at)
        is_aio = isinstance(at.store, aio.Store)
        heard: Any = asyncio.Event() if is_aio else threading.Event()

        def hear(error: object) -> None:
            at.told(error)
            heard.set()

        connection.exception_listener = hear
        its = await waited(connection.session(mode))
        consumer = await waited(its.consumer(its.queue(at.name), prefetch=prefetch))
        put_nothing(at, count)
        consumer.listener = at.told
        unacked = min(count, prefetch)
        if not is_aio:
            wait_until(lambda: at.store.queue_status(at.name).messages_unacked >= unacked)
        at.ready()
        await waited(heard.wait())

    return call


def _client(server: flight.FlightListener) -> flight.Client:
    return flight.connect(f"grpc://{server.address}")


async def remote_get_batch(at: Place) -> Any:
    with flight.serve(at.store) as server, _client(server) as client:
        at.ready()
        return client.get_batch(at.name, timeout=None)


async def remote_read(at: Place) -> Any:
    with flight.serve(at.store) as server, _client(server) as client:
        stream = client.stream(at.name)
        at.ready()
        return list(stream.read(follow=True))


_KEEPING = ("client", "individual", "transacted")
MODES = ("auto", "client", "dups_ok", "individual", "transacted")

# Each of the synchronous face and of asyncio's.
BOTH = [
    Wait("Channel.next_delivery", next_delivery),
    Wait("Channel.consume", consume, ends=True),
    Wait("Channel.get_batch", get_batch),
    Wait("Channel.process_events", events("process_events", None), ends=True),
    Wait("Channel.start_consuming", events("start_consuming"), ends=True),
    Wait("Queue.get", get),
    Wait("Queue.work", work),
    Wait("Stream.read", read, of_stream=True),
    Wait("StreamConsumer.poll", poll, of_stream=True),
    *(
        Wait(
            "session.Consumer.receive",
            receive(mode, prefetch, count),
            case=f"{mode} {prefetch} {count}",
        )
        for mode in MODES
        for prefetch, count in ((0, 0), (1000, 0), (2, 9))
    ),
    *(
        Wait(
            "session.Consumer.listener",
            listen(mode, prefetch, count),
            ends=True,
            case=f"{mode} {prefetch} {count}",
        )
        for mode in MODES
        for prefetch, count in ((1000, 0), (2, 9))
        if count == 0 or mode in _KEEPING
    ),
]

WAITS = [
    *BOTH,
    *(wait._replace(verb=f"aio.{wait.verb}") for wait in BOTH),
    Wait("Channel.next_delivery", next_delivery, of_stream=True, case="of a stream"),
    Wait("Queue.__iter__", iterate),
    Wait("aio.Queue.__aiter__", iterate),
    Wait("StreamConsumer.poll", poll_two, of_stream=True, case="of two"),
    Wait("StreamConsumer.poll", poll_again, of_stream=True, case="again"),
    Wait("flight.Client.get_batch", remote_get_batch),
    Wait("flight.RemoteStream.read", remote_read, of_stream=True),
]

"""The public classes of all faces, by introspection, and every wait of theirs in one table.

A wait that the table does not have fails ``test_every_wait_is_in_the_table``: what is tried over
the table is tried with a new verb by itself.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
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


Call = Callable[[Place], Any]


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
        """Whether the call is a coroutine function."""
        return inspect.iscoroutinefunction(self.call)

    def run(self, place: Place) -> Any:
        """Wait, in this thread."""
        if not self.is_async:
            return self.call(place)

        async def main() -> Any:
            return await self.call(place._replace(store=aio.Store(place.store)))

        return asyncio.run(main())

    def declare(self, store: pyqstore.Store, name: str) -> Any:
        """What it waits for."""
        return store.stream(name) if self.of_stream else store.queue(name)


# Of channels, queues and streams.


def next_delivery(at: Place) -> Any:
    channel = at.store.channel()
    channel.basic_qos(5)
    tag = channel.basic_consume(at.name)
    at.ready()
    return channel.next_delivery(tag)


def consume(at: Place) -> Any:
    messages = at.store.channel().consume(at.name)
    at.store.queue(at.name).put(b"")
    next(messages)  # it is a consumer from here on
    at.ready()
    return list(messages)


def get_batch(at: Place) -> Any:
    channel = at.store.channel()
    at.ready()
    return channel.get_batch(at.name, timeout=None)


def process_events(at: Place) -> Any:
    channel = at.store.channel()
    channel.add_cancel_listener(lambda tag: at.told(at.name))
    channel.basic_consume(at.name, at.told)
    at.ready()
    return channel.process_events(None)


def start_consuming(at: Place) -> Any:
    channel = at.store.channel()
    channel.add_cancel_listener(lambda tag: at.told(at.name))
    channel.basic_consume(at.name, at.told)
    at.ready()
    return channel.start_consuming()


def get(at: Place) -> Any:
    queue = at.store.queue(at.name)
    at.ready()
    return queue.get()


def iterate(at: Place) -> Any:
    queue = at.store.queue(at.name)
    at.ready()
    return list(queue)


def work(at: Place) -> Any:
    queue = at.store.queue(at.name)
    at.ready()
    return queue.work(at.told, threads=2)


def read(at: Place) -> Any:
    stream = at.store.stream(at.name)
    at.ready()
    return list(stream.read(follow=True))


def poll(at: Place) -> Any:
    consumer = at.store.stream_consumer(at.name, "g")
    at.ready()
    return consumer.poll(timeout=None)


def poll_two(at: Place) -> Any:
    at.store.stream("other")
    consumer = at.store.stream_consumer([at.name, "other"], "g")
    at.ready()
    return consumer.poll(timeout=None)


def poll_again(at: Place) -> Any:
    consumer = at.store.stream_consumer(at.name, "g")
    at.ready()
    try:
        return consumer.poll(timeout=None)
    except pyqstore.NotFound:
        return consumer.poll(timeout=None)


async def aio_next_delivery(at: Place) -> Any:
    channel = await at.store.channel()
    tag = await channel.basic_consume(at.name)
    at.ready()
    return await channel.next_delivery(tag)


async def aio_consume(at: Place) -> Any:
    messages = (await at.store.channel()).consume(at.name)
    await (await at.store.queue(at.name)).put(b"")
    await anext(messages)
    at.ready()
    return [message async for message in messages]


async def aio_get_batch(at: Place) -> Any:
    channel = await at.store.channel()
    at.ready()
    return await channel.get_batch(at.name, timeout=None)


async def aio_process_events(at: Place) -> Any:
    channel = await at.store.channel()
    channel.add_cancel_listener(lambda tag: at.told(at.name))
    await channel.basic_consume(at.name, at.told)
    at.ready()
    return await channel.process_events(None)


async def aio_start_consuming(at: Place) -> Any:
    channel = await at.store.channel()
    channel.add_cancel_listener(lambda tag: at.told(at.name))
    await channel.basic_consume(at.name, at.told)
    at.ready()
    return await channel.start_consuming()


async def aio_get(at: Place) -> Any:
    queue = await at.store.queue(at.name)
    at.ready()
    return await queue.get()


async def aio_iterate(at: Place) -> Any:
    queue = await at.store.queue(at.name)
    at.ready()
    return [message async for message in queue]


async def aio_work(at: Place) -> Any:
    queue = await at.store.queue(at.name)
    at.ready()
    return await queue.work(at.told, tasks=2)


async def aio_read(at: Place) -> Any:
    stream = await at.store.stream(at.name)
    at.ready()
    return [batch async for batch in stream.read(follow=True)]


async def aio_poll(at: Place) -> Any:
    consumer = await at.store.stream_consumer(at.name, "g")
    at.ready()
    return await consumer.poll(timeout=None)


# Of sessions.


def receive(mode: str, prefetch: int, count: int = 0) -> Call:
    """Wait behind ``count`` messages that are not acknowledged, or all that there may be."""

    def call(at: Place) -> Any:
        its = session.connect(at.store).session(mode)
        consumer = its.consumer(its.queue(at.name), prefetch=prefetch)
        at.store.queue(at.name).put_many([b""] * count)
        while count and consumer.receive(timeout=0) is not None:
            pass
        at.ready()
        return consumer.receive()

    return call


def aio_receive(mode: str, prefetch: int, count: int = 0) -> Call:
    """As ``receive``."""

    async def call(at: Place) -> Any:
        its = await (await aio_session.connect(at.store)).session(mode)
        consumer = await its.consumer(its.queue(at.name), prefetch=prefetch)
        at.store._store.queue(at.name).put_many([b""] * count)
        while count and await consumer.receive(timeout=0) is not None:
            pass
        at.ready()
        return await consumer.receive()

    return call


def listen(mode: str, prefetch: int, count: int = 0) -> Call:
    """A listener that acknowledges nothing."""

    def call(at: Place) -> Any:
        connection = session.connect(at.store)
        heard = threading.Event()

        def hear(error: object) -> None:
            at.told(error)
            heard.set()

        connection.exception_listener = hear
        its = connection.session(mode)
        consumer = its.consumer(its.queue(at.name), prefetch=prefetch)
        at.store.queue(at.name).put_many([b""] * count)
        consumer.listener = at.told
        unacked = min(count, prefetch)
        wait_until(lambda: at.store.queue_status(at.name).messages_unacked >= unacked)
        at.ready()
        heard.wait()

    return call


def aio_listen(mode: str, prefetch: int, count: int = 0) -> Call:
    """As ``listen``."""

    async def call(at: Place) -> Any:
        connection = await aio_session.connect(at.store)
        heard = asyncio.Event()

        async def hear(error: object) -> None:
            at.told(error)
            heard.set()

        connection.exception_listener = hear
        its = await connection.session(mode)
        consumer = await its.consumer(its.queue(at.name), prefetch=prefetch)
        at.store._store.queue(at.name).put_many([b""] * count)
        consumer.listener = at.told
        at.ready()
        await heard.wait()

    return call


def _client(server: flight.FlightListener) -> flight.Client:
    return flight.connect(f"grpc://{server.address}")


def remote_get_batch(at: Place) -> Any:
    with flight.serve(at.store) as server, _client(server) as client:
        at.ready()
        return client.get_batch(at.name, timeout=None)


def remote_read(at: Place) -> Any:
    with flight.serve(at.store) as server, _client(server) as client:
        stream = client.stream(at.name)
        at.ready()
        return list(stream.read(follow=True))


_KEEPING = ("client", "individual", "transacted")
MODES = ("auto", "client", "dups_ok", "individual", "transacted")

WAITS = [
    Wait("Channel.next_delivery", next_delivery),
    Wait("Channel.next_delivery", next_delivery, of_stream=True, case="of a stream"),
    Wait("Channel.consume", consume, ends=True),
    Wait("Channel.get_batch", get_batch),
    Wait("Channel.process_events", process_events, ends=True),
    Wait("Channel.start_consuming", start_consuming, ends=True),
    Wait("Queue.get", get),
    Wait("Queue.__iter__", iterate),
    Wait("Queue.work", work),
    Wait("Stream.read", read, of_stream=True),
    Wait("StreamConsumer.poll", poll, of_stream=True),
    Wait("StreamConsumer.poll", poll_two, of_stream=True, case="of two"),
    Wait("StreamConsumer.poll", poll_again, of_stream=True, case="again"),
    Wait("aio.Channel.next_delivery", aio_next_delivery),
    Wait("aio.Channel.consume", aio_consume, ends=True),
    Wait("aio.Channel.get_batch", aio_get_batch),
    Wait("aio.Channel.process_events", aio_process_events, ends=True),
    Wait("aio.Channel.start_consuming", aio_start_consuming, ends=True),
    Wait("aio.Queue.get", aio_get),
    Wait("aio.Queue.__aiter__", aio_iterate),
    Wait("aio.Queue.work", aio_work),
    Wait("aio.Stream.read", aio_read, of_stream=True),
    Wait("aio.StreamConsumer.poll", aio_poll, of_stream=True),
    *(
        Wait(verb, call(mode, prefetch, count), case=f"{mode} {prefetch} {count}")
        for verb, call in (
            ("session.Consumer.receive", receive),
            ("aio.session.Consumer.receive", aio_receive),
        )
        for mode in MODES
        for prefetch, count in ((0, 0), (1000, 0), (2, 9))
    ),
    *(
        Wait(verb, call(mode, prefetch, count), ends=True, case=f"{mode} {prefetch} {count}")
        for verb, call in (
            ("session.Consumer.listener", listen),
            ("aio.session.Consumer.listener", aio_listen),
        )
        for mode in MODES
        for prefetch, count in ((1000, 0), (2, 9))
        if count == 0 or mode in _KEEPING
    ),
    Wait("flight.Client.get_batch", remote_get_batch),
    Wait("flight.RemoteStream.read", remote_read, of_stream=True),
]

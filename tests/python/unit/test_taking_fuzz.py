"""Every verb that takes messages, with a signal handler that raises, or a task that is cancelled,
at random steps: each message is handed out once, and nothing is left behind.

``QS_TAKING_SEED`` repeats a run; ``QS_TAKING_S`` is how many seconds each verb is attacked.
"""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore import aio
from pyqstore.aio import session as aio_session
from pyqstore.session import connect

from ..interrupts import interrupted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SEED = int(os.environ.get("QS_TAKING_SEED", "1"))
SECONDS = float(os.environ.get("QS_TAKING_S", "2"))
STEPS = 400  # more than any verb has
UNTOUCHED = 1_000_000
QUEUE, STREAM = "q", "s"
MODES = ("auto", "client", "dups_ok", "individual", "transacted")


def nothing() -> None:
    """What was taken goes back, or stays, by itself."""


@dataclass(frozen=True)
class Taking:
    """A verb that takes, and what settles its result: the bodies, which are then acknowledged or
    committed.  ``recover``: what a caller does after an exception where the verb leaves that to
    him."""

    verb: Callable[[], Any]
    settle: Callable[[Any], list[bytes]]
    recover: Callable[[], None] = nothing


@dataclass(frozen=True)
class Awaiting:
    """The same with asyncio.  A task that is cancelled has no part in what becomes of a message."""

    verb: Callable[[], Awaitable[Any]]
    settle: Callable[[Any], Awaitable[list[bytes]]]


def taken(message: Any) -> list[bytes]:
    if message is None:
        return []
    message.ack()
    return [message.body]


def rows(batch: Any) -> list[bytes]:
    return [] if batch is None else list(batch["body"].to_pylist())


# The verbs. Each takes what is in one queue, or in one stream.


@contextmanager
def queue_get(store: pyqstore.Store) -> Iterator[Taking]:
    yield Taking(lambda: store.queue(QUEUE).get(0), taken)


@contextmanager
def queue_wait(store: pyqstore.Store) -> Iterator[Taking]:
    queue = store.queue(QUEUE)
    yield Taking(lambda: queue.get(0.001), taken)


@contextmanager
def channel_get(store: pyqstore.Store) -> Iterator[Taking]:
    with store.channel() as channel:
        yield Taking(lambda: channel.basic_get(QUEUE), taken, channel.basic_recover)


@contextmanager
def channel_get_batch(store: pyqstore.Store) -> Iterator[Taking]:
    with store.channel() as channel:

        def settle(batch: Any) -> list[bytes]:
            if len(batch) > 0:
                channel.basic_ack(batch["delivery_tag"][-1].as_py(), multiple=True)
            return rows(batch)

        yield Taking(lambda: channel.get_batch(QUEUE, 3), settle, channel.basic_recover)


@contextmanager
def channel_next_delivery(store: pyqstore.Store) -> Iterator[Taking]:
    with store.channel() as channel:
        channel.basic_qos(2)
        tag = channel.basic_consume(QUEUE)
        yield Taking(lambda: channel.next_delivery(tag, 0.001), taken, channel.basic_recover)


@contextmanager
def channel_consume(store: pyqstore.Store) -> Iterator[Taking]:
    with store.channel() as channel:
        channel.basic_qos(2)

        def first() -> Any:
            with channel.consume(QUEUE, inactivity_timeout=0.001) as messages:
                return next(messages, None)

        yield Taking(first, taken, channel.basic_recover)


@contextmanager
def channel_callback(store: pyqstore.Store) -> Iterator[Taking]:
    with store.channel() as channel:
        channel.basic_qos(1)

        def first() -> Any:
            came: list[Any] = []

            def stop(message: Any) -> None:
                came.append(message)
                channel.stop_consuming()

            tag = channel.basic_consume(QUEUE, stop)
            try:
                if store.queue_status(QUEUE).messages_ready > 0:
                    channel.start_consuming()
            finally:
                if tag in channel._consumers:
                    channel.basic_cancel(tag)
            return came[0] if came else None

        yield Taking(first, taken, channel.basic_recover)


def session_receive(
    mode: str, prefetch: int | None = None
) -> Callable[[pyqstore.Store], AbstractContextManager[Taking]]:
    @contextmanager
    def make(store: pyqstore.Store) -> Iterator[Taking]:
        with connect(store) as connection, connection.session(mode) as session:
            consumer = session.consumer(session.queue(QUEUE), prefetch=prefetch)

            def settle(message: Any) -> list[bytes]:
                if message is None:
                    return []
                if mode == "transacted":
                    session.commit()
                elif mode in ("client", "individual"):
                    message.acknowledge()
                return [message.body]

            yield Taking(lambda: consumer.receive(0.001), settle)

    return make


@contextmanager
def consumer_poll(store: pyqstore.Store) -> Iterator[Taking]:
    with store.stream_consumer(STREAM, group="g") as consumer:

        def settle(batch: Any) -> list[bytes]:
            consumer.commit()
            return rows(batch)

        yield Taking(lambda: consumer.poll(3), settle)


@contextmanager
def stream_read(store: pyqstore.Store) -> Iterator[Taking]:
    reader = store.stream(STREAM).read(follow=True)
    there = 0

    def settle(batch: Any) -> list[bytes]:
        nonlocal there
        there = batch["offset"][-1].as_py() + 1
        return rows(batch)

    def read() -> Any:
        # A reader that follows waits for ever, so it is asked where there is something.
        return reader.read_next_batch() if there < store.stream(STREAM).next else None

    yield Taking(read, settle)


SYNCHRONOUS: dict[str, Callable[[pyqstore.Store], AbstractContextManager[Taking]]] = {
    "Queue.get": queue_get,
    "Queue.get, waiting": queue_wait,
    "Channel.basic_get": channel_get,
    "Channel.get_batch": channel_get_batch,
    "Channel.next_delivery": channel_next_delivery,
    "Channel.consume": channel_consume,
    "Channel.start_consuming": channel_callback,
    "StreamConsumer.poll": consumer_poll,
    "Stream.read": stream_read,
} | {
    f"Session.receive, {mode}{told}": session_receive(mode, prefetch)
    for mode in MODES
    for told, prefetch in (("", None), (", topped up", 2))
}


def fill(store: pyqstore.Store, is_stream: bool, bodies: list[bytes]) -> None:
    for body in bodies:
        if is_stream:
            store.stream(STREAM).publish(body)
        else:
            store.queue(QUEUE).put(body)


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_no_verb_loses_or_doubles_a_message_when_a_signal_handler_raises(
    store: pyqstore.Store, name: str
) -> None:
    chance = random.Random(SEED)
    is_stream = name.startswith("Stream")
    store.queue(QUEUE)
    store.stream(STREAM)
    sent: list[bytes] = []
    got: list[bytes] = []
    with SYNCHRONOUS[name](store) as taking:

        def attack(step: int) -> None:
            try:
                result, is_interrupted = interrupted(step, taking.verb)
            except pyqstore.Empty:
                return
            if result is not None:
                got.extend(taking.settle(result))
            elif is_interrupted:
                taking.recover()

        attack(UNTOUCHED)  # which imports what the verb needs
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or len(sent) <= 10:
            more = [b"%d" % (len(sent) + number) for number in range(chance.randrange(4))]
            fill(store, is_stream, more)
            sent += more
            for _ in range(chance.randrange(1, 4)):
                attack(chance.randrange(1, chance.choice((30, STEPS))))
        idle = 0
        while idle < 3:
            before = len(got)
            attack(UNTOUCHED)
            idle = idle + 1 if len(got) == before else 0
    assert sorted(got, key=int) == sent, f"QS_TAKING_SEED={SEED}"
    status = store.queue_status(QUEUE)
    assert (status.messages_ready, status.messages_unacked, status.consumers) == (0, 0, 0)


# asyncio.


async def awaited(message: Any) -> list[bytes]:
    if message is None:
        return []
    await message.ack()
    return [message.body]


async def acknowledged(message: Any) -> list[bytes]:
    """By the verb, before it returned."""
    return [] if message is None else [message.body]


@asynccontextmanager
async def aio_queue_get(store: aio.Store) -> AsyncIterator[Awaiting]:
    queue = await store.queue(QUEUE)
    yield Awaiting(lambda: queue.get(0.002), awaited)


@asynccontextmanager
async def aio_queue_iteration(store: aio.Store) -> AsyncIterator[Awaiting]:
    messages = aiter(await store.queue(QUEUE))
    yield Awaiting(lambda: following(messages), awaited)
    await messages.aclose()  # type: ignore[attr-defined]


async def following(rows: AsyncIterator[Any], seconds: float = 0.002) -> Any:
    """The next of an iteration, or None."""
    try:
        return await asyncio.wait_for(anext(rows), seconds)
    except TimeoutError:
        return None


def aio_channel(
    receive: Callable[[aio.Channel, bool], AbstractAsyncContextManager[Awaiting]], auto_ack: bool
) -> Callable[[aio.Store], AbstractAsyncContextManager[Awaiting]]:
    """A verb of a channel of its own."""

    @asynccontextmanager
    async def make(store: aio.Store) -> AsyncIterator[Awaiting]:
        async with await store.channel() as channel, receive(channel, auto_ack) as awaiting:
            yield awaiting

    return make


@asynccontextmanager
async def aio_get(channel: aio.Channel, auto_ack: bool) -> AsyncIterator[Awaiting]:
    settle = acknowledged if auto_ack else awaited
    yield Awaiting(lambda: channel.basic_get(QUEUE, auto_ack), settle)


@asynccontextmanager
async def aio_get_batch(channel: aio.Channel, auto_ack: bool) -> AsyncIterator[Awaiting]:
    async def settle(batch: Any) -> list[bytes]:
        if len(batch) > 0 and not auto_ack:
            await channel.basic_ack(batch["delivery_tag"][-1].as_py(), multiple=True)
        return rows(batch)

    yield Awaiting(lambda: channel.get_batch(QUEUE, 3, auto_ack=auto_ack, timeout=0.002), settle)


@asynccontextmanager
async def aio_next_delivery(channel: aio.Channel, auto_ack: bool) -> AsyncIterator[Awaiting]:
    if not auto_ack:
        await channel.basic_qos(2)
    tag = await channel.basic_consume(QUEUE, auto_ack=auto_ack)
    settle = acknowledged if auto_ack else awaited
    yield Awaiting(lambda: channel.next_delivery(tag, 0.002), settle)


@asynccontextmanager
async def aio_consume(channel: aio.Channel, auto_ack: bool) -> AsyncIterator[Awaiting]:
    if not auto_ack:
        await channel.basic_qos(2)
    messages = channel.consume(QUEUE, auto_ack=auto_ack)
    yield Awaiting(lambda: following(messages), acknowledged if auto_ack else awaited)
    await messages.aclose()


def aio_session_receive(
    mode: str, prefetch: int | None = None
) -> Callable[[aio.Store], AbstractAsyncContextManager[Awaiting]]:
    @asynccontextmanager
    async def make(store: aio.Store) -> AsyncIterator[Awaiting]:
        async with aio_session.connect(store) as connection:
            session = await connection.session(mode)
            consumer = await session.consumer(session.queue(QUEUE), prefetch=prefetch)

            async def settle(message: Any) -> list[bytes]:
                if message is None:
                    return []
                if mode == "transacted":
                    await session.commit()
                elif mode in ("client", "individual"):
                    await message.acknowledge()
                return [message.body]

            yield Awaiting(lambda: consumer.receive(0.002), settle)
            await session.close()

    return make


@asynccontextmanager
async def aio_consumer_poll(store: aio.Store) -> AsyncIterator[Awaiting]:
    async with await store.stream_consumer(STREAM, group="g") as consumer:

        async def settle(batch: Any) -> list[bytes]:
            await consumer.commit()
            return rows(batch)

        yield Awaiting(lambda: consumer.poll(3, timeout=0.002), settle)


@asynccontextmanager
async def aio_stream_read(store: aio.Store) -> AsyncIterator[Awaiting]:
    batches = (await store.stream(STREAM)).read(follow=True)

    async def settle(batch: Any) -> list[bytes]:
        return rows(batch)

    yield Awaiting(lambda: following(batches, 0.05), settle)
    await batches.aclose()  # type: ignore[attr-defined]


ASYNCHRONOUS: dict[str, Callable[[aio.Store], AbstractAsyncContextManager[Awaiting]]] = (
    {
        "Queue.get": aio_queue_get,
        "Queue.__aiter__": aio_queue_iteration,
        "StreamConsumer.poll": aio_consumer_poll,
        "Stream.read": aio_stream_read,
    }
    | {
        f"Channel.{verb}{', auto_ack' if auto_ack else ''}": aio_channel(receive, auto_ack)
        for verb, receive in (
            ("basic_get", aio_get),
            ("get_batch", aio_get_batch),
            ("next_delivery", aio_next_delivery),
            ("consume", aio_consume),
        )
        for auto_ack in (False, True)
    }
    | {
        f"Session.receive, {mode}{told}": aio_session_receive(mode, prefetch)
        for mode in MODES
        for told, prefetch in (("", None), (", topped up", 2))
    }
)


async def pause(chance: random.Random) -> None:
    """So many turns of the loop, or so long that threads go on."""
    if chance.random() < 0.3:
        await asyncio.sleep(chance.random() * 0.003)
    for _ in range(chance.randrange(20)):
        await asyncio.sleep(0)


async def cancelled(task: "asyncio.Task[Any]") -> Any:
    """What it returned, though it was cancelled; None where it did not."""
    task.cancel()
    try:
        return await task
    except (asyncio.CancelledError, pyqstore.Empty):
        return None


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_no_verb_loses_or_doubles_a_message_when_its_task_is_cancelled(
    path: Path, name: str
) -> None:
    chance = random.Random(SEED)
    is_stream = name.startswith("Stream")
    sent: list[bytes] = []
    got: list[bytes] = []

    async def main() -> None:
        async with aio.open(path) as store:
            queue, stream = await store.queue(QUEUE), await store.stream(STREAM)
            put = stream.publish if is_stream else queue.put
            async with ASYNCHRONOUS[name](store) as awaiting:

                async def take(is_attacked: bool) -> None:
                    task = asyncio.ensure_future(awaiting.verb())
                    if is_attacked:
                        await pause(chance)
                        result = await cancelled(task)  # type: ignore[arg-type]
                    else:
                        try:
                            result = await task
                        except pyqstore.Empty:
                            result = None
                    if result is not None:
                        got.extend(await awaiting.settle(result))

                await take(is_attacked=False)
                end = time.monotonic() + SECONDS
                while time.monotonic() < end or len(sent) <= 10:
                    for _ in range(chance.randrange(4)):
                        sent.append(b"%d" % len(sent))
                        await put(sent[-1])
                    for _ in range(chance.randrange(1, 4)):
                        await take(is_attacked=True)
                idle = 0
                while idle < 3:
                    before = len(got)
                    await take(is_attacked=False)
                    idle = idle + 1 if len(got) == before else 0
                assert sorted(got, key=int) == sent, f"QS_TAKING_SEED={SEED}"
                if not is_stream:
                    status = await store.queue_status(QUEUE)
                    assert (status.messages_ready, status.messages_unacked) == (0, 0)
            # A consumer goes some turns of the loop after whoever had it.
            while (await store.queue_status(QUEUE)).consumers > 0:
                await asyncio.sleep(0)

    asyncio.run(main())

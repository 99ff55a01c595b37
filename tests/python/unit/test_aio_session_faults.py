"""Sessions of asyncio: tasks that are cancelled, channels that an error closes, threads that have a
session's lock."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import pyqstore
from pyqstore import aio

from ..support import until

jms = aio.session
QUICK = pyqstore.session.RedeliveryPolicy(initial_redelivery_delay=0.01, redelivery_delay=0.01)


def run(
    path: Path, work: Callable[[aio.Store, jms.Connection], Awaitable[None]], options: str = ""
) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(60),
            jms.connect(f"qstore://{path}{options}", redelivery=QUICK) as connection,
        ):
            await work(connection.store, connection)

    asyncio.run(main())


async def send(connection: jms.Connection, queue: str, *bodies: str) -> None:
    async with await connection.session() as session:
        producer = await session.producer(session.queue(queue))
        for body in bodies:
            await producer.send(body, persistent=False)


@pytest.mark.parametrize("prefetch", [0, 3])
def test_a_receive_that_is_cancelled_while_its_acknowledgement_is_made_durable_loses_nothing(
    path: Path, prefetch: int
) -> None:
    async def work(store: aio.Store, connection: jms.Connection) -> None:
        session = await connection.session()
        consumer = await session.consumer(session.queue("q"), prefetch=prefetch)
        sent = [str(number) for number in range(60)]
        await send(connection, "q", *sent)
        got: list[str] = []
        for turn in range(10_000):
            receiving = asyncio.create_task(consumer.receive())
            for _ in range(turn % 7):
                await asyncio.sleep(0)
            receiving.cancel()
            try:
                message = await receiving
            except asyncio.CancelledError:
                message = await consumer.receive(timeout=0) if turn % 2 else None
            if message is not None:
                got.append(message.text)
            if len(got) == len(sent):
                break
        assert got == sent
        assert await consumer.receive(timeout=0) is None
        assert (await store.stats())["messages_acked"] == len(sent)

    run(path, work, "?sendAcksAsync=false")


def test_a_receive_that_waits_goes_on_when_an_error_closed_the_channel(path: Path) -> None:
    async def work(store: aio.Store, connection: jms.Connection) -> None:
        session = await connection.session()
        consumer = await session.consumer(session.queue("q"))
        groups = await session.groups("g", 1)
        producer = await session.producer(groups)
        receiving = asyncio.create_task(consumer.receive())
        await until(lambda: session._turns._waiters)
        async with await store.channel() as channel:
            await channel.exchange_delete("g")
        with pytest.raises(pyqstore.NotFound):
            await producer.send("lost")
        await send(connection, "q", "a")
        message = await receiving
        assert message is not None
        assert message.text == "a"

    run(path, work)


def test_a_receive_that_waits_says_so_when_its_queue_is_deleted(path: Path) -> None:
    async def work(store: aio.Store, connection: jms.Connection) -> None:
        session = await connection.session()
        consumer = await session.consumer(session.queue("q"))
        receiving = asyncio.create_task(consumer.receive())
        await until(lambda: session._turns._waiters)
        async with await store.channel() as channel:
            await channel.queue_delete("q")
        with pytest.raises(pyqstore.session.IllegalState, match="the queue of q was deleted"):
            await receiving
        with pytest.raises(pyqstore.session.IllegalState, match="the queue of q was deleted"):
            await consumer.receive(timeout=0)

    run(path, work)


@pytest.mark.parametrize("owner", ["consumer", "session", "connection"])
def test_a_close_that_is_cancelled_while_a_listener_runs_leaves_everything_open(
    path: Path, owner: str
) -> None:
    async def work(store: aio.Store, connection: jms.Connection) -> None:
        session = await connection.session()
        consumer = await session.consumer(session.queue("q"))
        seen: list[str] = []
        may_end = asyncio.Event()

        async def listen(message: jms.Message) -> None:
            seen.append(message.text)
            await may_end.wait()

        consumer.listener = listen
        await send(connection, "q", "a", "b")
        await until(lambda: seen)
        ending = {"consumer": consumer, "session": session, "connection": connection}[owner]
        closing = asyncio.create_task(ending.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not ending.closed
        may_end.set()
        await until(lambda: seen == ["a", "b"])
        await ending.close()
        assert consumer.closed

    run(path, work)


@pytest.mark.parametrize("prefetch", [0, 3])
def test_the_loop_runs_while_a_thread_has_the_lock_of_a_session(path: Path, prefetch: int) -> None:
    async def work(store: aio.Store, connection: jms.Connection) -> None:
        session = await connection.session()
        consumer = await session.consumer(session.queue("q"), prefetch=prefetch)
        await send(connection, "q", "a", "b")
        first = await consumer.receive()
        has, may_end = threading.Event(), threading.Event()
        was_told: list[bool] = []

        def hold() -> None:
            with session._twin._link.lock:
                has.set()
                was_told.append(may_end.wait(20))

        thread = threading.Thread(target=hold)
        thread.start()
        has.wait()
        receiving = asyncio.create_task(consumer.receive())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not receiving.done()
        may_end.set()
        second = await receiving
        thread.join()
        assert was_told == [True]
        assert first is not None
        assert second is not None
        assert (first.text, second.text) == ("a", "b")

    run(path, work)

"""Sessions of asyncio: the same rules as those of threads, and what only a loop has: cancellation,
coroutines as listeners."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore import aio

from ..support import until

jms = aio.session
QUICK = pyqstore.session.RedeliveryPolicy(initial_redelivery_delay=0.01, redelivery_delay=0.01)


@pytest.fixture
def connection(aio_store: aio.Store, runner: asyncio.Runner) -> Iterator[jms.Connection]:
    async def connect() -> jms.Connection:
        return await jms.connect(aio_store, redelivery=QUICK)

    connection = runner.run(connect())
    yield connection
    runner.run(connection.close())


async def send(connection: jms.Connection, queue: str, *bodies: str, **kind: Any) -> None:
    async with await connection.session() as session:
        producer = await session.producer(session.queue(queue))
        for body in bodies:
            await producer.send(body, **kind)


async def test_a_receive_that_is_cancelled_loses_nothing(connection: jms.Connection) -> None:
    session = await connection.session()
    consumer = await session.consumer(session.queue("q"), prefetch=3)
    got: list[str] = []
    sent = [str(number) for number in range(200)]
    sending = asyncio.create_task(send(connection, "q", *sent, persistent=False))
    while len(got) < len(sent):
        receiving = asyncio.create_task(consumer.receive())
        for _ in range(len(got) % 4):
            await asyncio.sleep(0)
        receiving.cancel()
        try:
            message = await receiving
        except asyncio.CancelledError:
            message = await consumer.receive(timeout=0.05)
        if message is not None:
            got.append(message.text)
    await sending
    assert got == sent


async def test_a_receive_waits_and_ends_when_its_session_is_closed(
    connection: jms.Connection,
) -> None:
    for prefetch in (0, 10):
        session = await connection.session()
        consumer = await session.consumer(session.queue("q"), prefetch=prefetch)
        receiving = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0.02)
        await send(connection, "q", "a")
        message = await receiving
        assert message is not None
        assert message.text == "a"
        receiving = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0.02)
        await session.close()
        assert await receiving is None
        with pytest.raises(pyqstore.session.IllegalState, match="The Session is closed"):
            await consumer.receive()


async def test_what_comes_while_another_listener_is_asked_for_is_delivered(
    connection: jms.Connection,
) -> None:
    """What the channel gives when it is armed for one may be for one whose turn is over."""
    session = await connection.session()
    seen: list[str] = []
    one = await session.consumer(session.queue("one"))
    two = await session.consumer(session.queue("two"))
    link = session._twin._link
    push = link._push
    armed: list[int] = []

    def publish_before(kinds: int) -> bool:
        if kinds & pyqstore._core.EVENT_ARM:
            armed.append(kinds)
            if len(armed) == 2:  # one has had its turn, this is that of two
                with connection._connection.store.channel() as channel:
                    channel.confirm_select()
                    channel.basic_publish("", "one", b"a")
                    channel.wait_for_confirms()
        return push(kinds)

    link._push = publish_before  # type: ignore[method-assign]
    one.listener = lambda message: seen.append(message.text)
    two.listener = lambda message: seen.append(message.text)
    await until(lambda: seen == ["a"])


async def test_listeners_are_functions_or_coroutine_functions(connection: jms.Connection) -> None:
    session = await connection.session()
    seen: list[tuple[str, int]] = []

    async def slow(message: jms.Message) -> None:
        await asyncio.sleep(0)
        seen.append((message.text, message.delivery_count))
        if message.delivery_count < 3:
            raise ValueError("again")

    def quick(message: jms.Message) -> None:
        seen.append((message.text, message.delivery_count))

    (await session.consumer(session.queue("one"))).listener = slow
    (await session.consumer(session.queue("two"))).listener = quick
    await send(connection, "one", "a")
    await send(connection, "two", "b")
    await until(lambda: len(seen) == 4)
    assert sorted(seen) == [("a", 1), ("a", 2), ("a", 3), ("b", 1)]


async def test_a_close_waits_for_the_listener_that_runs(connection: jms.Connection) -> None:
    for owner in ("consumer", "session", "connection"):
        session = await connection.session()
        consumer = await session.consumer(session.queue(owner))
        began, may_end = asyncio.Event(), asyncio.Event()
        said: list[str] = []

        async def listen(
            message: jms.Message, began=began, may_end=may_end, session=session, said=said
        ) -> None:
            began.set()
            await may_end.wait()
            with pytest.raises(pyqstore.session.IllegalState, match="a listener cannot"):
                await session.close()
            said.append(message.text)

        consumer.listener = listen
        await send(connection, owner, "a")
        await began.wait()
        ending = {"consumer": consumer, "session": session, "connection": connection}[owner]
        closing = asyncio.create_task(ending.close())
        await asyncio.sleep(0.02)
        assert not closing.done()
        may_end.set()
        await closing
        assert said == ["a"]


def test_connections_by_uri_and_to_a_store_of_threads(path: Path) -> None:
    async def main() -> None:
        uri = f"qstore://{path}?clientID=billing"
        connection = await jms.connect(uri)
        assert connection.client_id == "billing"
        session = await connection.session("client")
        consumer = await session.subscribe(session.topic("t.>"), "audit", durable=True)
        assert consumer.prefetch == 100
        await consumer.close()
        await connection.close()
        await connection.close()
        with pyqstore.open(path) as store:
            async with jms.connect(store, "billing") as connection:
                session = await connection.session()
                producer = await session.producer()
                await producer.send("a", destination=session.topic("t.x"))
                consumer = await session.subscribe(session.topic("t.>"), "audit", durable=True)
                message = await consumer.receive(timeout=20)
                assert message is not None
                await consumer.close()
                await session.unsubscribe("audit")
                groups = await session.groups("g", 2)
                await producer.send("b", destination=groups, properties={"JMSXGroupID": "x"})
                answers = await session.temporary_queue()
                await producer.send("c", destination=answers)
                answer = await (await session.consumer(answers)).receive(timeout=20)
                assert answer is not None
                assert answer.text == "c"
            assert not store.closed

    asyncio.run(asyncio.wait_for(main(), 60))


async def test_a_close_is_noticed_while_the_task_of_listeners_asks_for_messages(
    connection: jms.Connection,
) -> None:
    for turn in range(50):
        session = await connection.session()
        consumer = await session.consumer(session.queue("q"))
        consumer.listener = print
        for _ in range(turn % 10):
            await asyncio.sleep(0)
        await session.close()


async def test_a_redelivery_that_is_due_before_the_wait_begins_does_not_wait_for_ever(
    connection: jms.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(connection, "q", "a")
    session = await connection.session("client")
    consumer = await session.consumer(session.queue("q"))
    assert await consumer.receive() is not None
    taken = session._turns.receive

    async def take_slowly(*given: Any) -> Any:
        message = await taken(*given)
        while message is None and time.monotonic() < consumer._consumer._due:
            await asyncio.sleep(0.001)
        return message

    monkeypatch.setattr(session._turns, "receive", take_slowly)
    await session.recover()
    message = await consumer.receive()
    assert message is not None
    assert message.delivery_count == 2


async def test_a_listener_with_a_full_window_goes_on_when_another_task_acknowledges(
    connection: jms.Connection,
) -> None:
    await send(connection, "q", *"abcdefgh")
    session = await connection.session("client")
    consumer = await session.consumer(session.queue("q"), prefetch=2)
    got: list[jms.Message] = []
    consumer.listener = got.append
    for full in (3, 6):
        await until(lambda full=full: len(got) == full)  # type: ignore[misc]
        await until(lambda: session._turns._waiters)
        await got[-1].acknowledge()
    await until(lambda: len(got) == 8)


async def test_tasks_that_close_a_connection_at_once_are_all_done(aio_store: aio.Store) -> None:
    for _ in range(40):
        connection = await jms.connect(aio_store)
        await connection.session()
        await asyncio.gather(*(connection.close() for _ in range(4)))
        assert connection.closed

"""ActiveMQ's options by URI, of a connection and of a destination, each by what it does: in
sessions of threads, and in those of asyncio."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore import aio

from ..support import wait_until

FACES = [pyqstore.session, aio.session]
COUNT = 70
# No batch is acknowledged before it is full because a machine is busy.
OPTIMIZED = "jms.optimizeAcknowledge=true&jms.optimizeAcknowledgeTimeOut=30000"
POLICIES = "jms.prefetchPolicy.queuePrefetch=12&jms.prefetchPolicy.topicPrefetch=20"
SOON_MS = 20


async def done(call: Any) -> Any:
    """What it returns, in either face."""
    return await call if inspect.isawaitable(call) else call


async def send(connection: Any, source: Any, count: int, **kind: Any) -> None:
    session = await done(connection.session())
    producer = await done(session.producer(source))
    for number in range(count):
        await done(producer.send(str(number), **kind))
    await done(session.close())


def run(face: Any, path: Path, options: str, work: Callable[[Any], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            connection = await done(face.connect(f"qstore://{path}?{options}"))
            try:
                await work(connection)
            finally:
                await done(connection.close())

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "mode", "destination", "prefetch", "batch"),
    [
        ("", "auto", "queue", 1000, 1),
        (OPTIMIZED, "auto", "queue?consumer.prefetchSize=100", 100, 65),
        (OPTIMIZED, "auto", "topic?consumer.prefetchSize=100", 100, 65),
        (OPTIMIZED, "auto", "queue?consumer.prefetchSize=1", 1, 1),
        ("jms.optimizeAcknowledge=false", "auto", "queue?consumer.prefetchSize=100", 100, 1),
        (POLICIES, "auto", "queue", 12, 1),
        (POLICIES, "auto", "topic", 20, 1),
        (f"{OPTIMIZED}&{POLICIES}", "auto", "queue", 12, 8),
        (f"{OPTIMIZED}&{POLICIES}", "auto", "topic", 20, 13),
        (POLICIES, "auto", "queue?consumer.prefetchSize=100", 100, 1),
        (POLICIES, "auto", "topic?consumer.prefetchSize=100", 100, 1),
        ("jms.prefetchPolicy.topicPrefetch=20", "auto", "queue", 1000, 1),
        ("jms.prefetchPolicy.queuePrefetch=0", "auto", "queue", 0, 1),
        (POLICIES, "auto", "queue?consumer.prefetchSize=0", 0, 1),
        (f"{OPTIMIZED}&{POLICIES}", "dups_ok", "queue", 12, 8),
        (POLICIES, "dups_ok", "queue", 12, 1),
        (f"{OPTIMIZED}&{POLICIES}", "dups_ok", "topic", 20, 10),
        (POLICIES, "dups_ok", "topic", 20, 10),
        (f"{OPTIMIZED}&{POLICIES}", "client", "queue", 12, 0),
        (f"{OPTIMIZED}&{POLICIES}", "individual", "queue", 12, 0),
        (f"{OPTIMIZED}&{POLICIES}", "transacted", "queue", 12, 0),
    ],
)
@pytest.mark.parametrize("face", FACES, ids=["threads", "asyncio"])
def test_prefetch_and_batches_are_those_of_the_uri(
    face: Any, path: Path, options: str, mode: str, destination: str, prefetch: int, batch: int
) -> None:
    async def work(connection: Any) -> None:
        async def stat(name: str) -> int:
            return int((await done(connection.store.stats()))[name])

        session = await done(connection.session(mode))
        kind, _, own = destination.partition("?")
        source = getattr(session, kind)(f"d?{own}" if own else "d")
        consumer = await done(session.consumer(source))
        assert consumer.prefetch == prefetch
        await send(connection, source, COUNT, persistent=False)
        wait_until(lambda: len(consumer.buffer) == min(prefetch, COUNT))
        acked = []
        while await done(consumer.receive(timeout=0)) is not None:
            acked.append(await stat("messages_acked"))
            if len(acked) == 1:  # an acknowledgement may have let one more come
                held = await stat("messages_delivered") - acked[0]
                assert held in (min(prefetch, COUNT), min(prefetch, COUNT) - 1)
        handed = COUNT if batch else prefetch * 3 // 2  # there it stalls
        assert acked == [(i + 1) // batch * batch if batch else 0 for i in range(handed)]

    run(face, path, options, work)


@pytest.mark.clock
@pytest.mark.parametrize("face", FACES, ids=["threads", "asyncio"])
def test_a_batch_is_acknowledged_after_the_time_of_the_uri(face: Any, path: Path) -> None:
    async def work(connection: Any) -> None:
        session = await done(connection.session())
        source = session.queue("q?consumer.prefetchSize=100")
        await send(connection, source, 2)
        consumer = await done(session.consumer(source))
        for _ in range(2):
            await asyncio.sleep(SOON_MS / 1000)
            assert await done(consumer.receive(timeout=20)) is not None
        assert (await done(connection.store.stats()))["messages_acked"] == 2

    options = f"jms.optimizeAcknowledge=true&jms.optimizeAcknowledgeTimeOut={SOON_MS}"
    run(face, path, options, work)


@pytest.mark.parametrize("most", [0, 1, 6])
@pytest.mark.parametrize("face", FACES, ids=["threads", "asyncio"])
def test_redeliveries_are_as_many_as_the_uri_says(face: Any, path: Path, most: int) -> None:
    async def work(connection: Any) -> None:
        session = await done(connection.session("transacted"))
        source = session.queue("q")
        await send(connection, source, 1)
        consumer = await done(session.consumer(source))
        counts = []
        while (message := await done(consumer.receive(timeout=0))) is not None:
            counts.append(message.delivery_count)
            await done(session.rollback())
        assert counts == list(range(1, most + 2))
        dead = await done(session.consumer(session.queue("ActiveMQ.DLQ")))
        assert (await done(dead.receive(timeout=20))).text == "0"

    options = (
        f"jms.redeliveryPolicy.maximumRedeliveries={most}"
        "&jms.redeliveryPolicy.initialRedeliveryDelay=0&jms.redeliveryPolicy.redeliveryDelay=0"
    )
    run(face, path, options, work)


@pytest.mark.parametrize("face", FACES, ids=["threads", "asyncio"])
def test_a_prefetch_of_zero_by_uri_refuses_listeners_and_batches(face: Any, path: Path) -> None:
    async def work(connection: Any) -> None:
        source = (await done(connection.session())).queue("q?consumer.prefetchSize=0")
        with pytest.raises(ValueError, match="optimize_acknowledge needs a prefetch of 1 or more"):
            await done((await done(connection.session())).consumer(source))
        consumer = await done((await done(connection.session("client"))).consumer(source))
        with pytest.raises(ValueError, match="Illegal prefetch size of zero"):
            consumer.listener = print

    run(face, path, OPTIMIZED, work)

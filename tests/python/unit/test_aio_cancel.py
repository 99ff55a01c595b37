"""Cancelling at random: no message is lost, none comes twice unflagged, nothing is left behind.

The seed of a storm is an argument of its test.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore import aio

PERSISTENT = pyqstore.Properties(delivery_mode=2)
LARGE = bytes(6000)
LIMIT = 100


async def storm(
    seed: int, operations: list[Callable[[], Awaitable[None]]], pause: Callable[[], Awaitable[None]]
) -> int:
    """Begin the operations, cancel half of them somewhere on their way; how many were cancelled."""
    chance = random.Random(seed)
    tasks: list[asyncio.Task[None]] = []
    for operation in operations:
        tasks.append(asyncio.ensure_future(operation()))
        if chance.random() < 0.3:
            await asyncio.sleep(0)
        if chance.random() < 0.02:
            await pause()
        if chance.random() < 0.5:
            chance.choice(tasks[-20:]).cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    failed = [result for result in results if isinstance(result, Exception)]
    assert not failed, failed[:3]
    return sum(isinstance(result, asyncio.CancelledError) for result in results)


async def drain(channel: aio.Channel) -> list[tuple[int, bool]]:
    taken = []
    while (message := await channel.basic_get("q", auto_ack=True)) is not None:
        taken.append((int(message.body.rstrip(b"\0")), message.redelivered))
    return taken


async def nap() -> None:
    await asyncio.sleep(0.001)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("confirms", [False, True])
def test_publishes_are_there_once_or_were_cancelled(path: Path, seed: int, confirms: bool) -> None:
    async def main() -> None:
        async with await aio.open(path) as store, await store.channel() as channel:
            await channel.queue_declare("q", durable=True)
            if confirms:
                await channel.confirm_select()
            done: set[int] = set()

            def publish(i: int) -> Callable[[], Awaitable[None]]:
                async def operation() -> None:
                    body = b"%d" % i + (LARGE if i % 7 == 0 else b"")
                    await channel.basic_publish("", "q", body, PERSISTENT)
                    done.add(i)

                return operation

            async with asyncio.timeout(LIMIT):
                cancelled = await storm(seed, [publish(i) for i in range(3000)], nap)
                if confirms:
                    assert await channel.wait_for_confirms(timeout=20)
                    assert not channel._confirms._futures
            assert cancelled > 0
            there = await drain(channel)
            assert len({i for i, _ in there}) == len(there)
            assert done <= {i for i, _ in there}
            assert [i for i, _ in there] == sorted(i for i, _ in there)

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("auto_ack", [False, True])
@pytest.mark.parametrize("how", ["get", "batch", "delivery", "iterate"])
def test_what_was_not_handed_out_is_still_there(
    path: Path, seed: int, auto_ack: bool, how: str
) -> None:
    async def main() -> None:
        async with await aio.open(path) as store, await store.channel() as channel:
            await channel.queue_declare("q", durable=True)
            feeder = await store.channel()
            expected = 2000 if how != "batch" else 6000
            fed = 0

            async def feed() -> None:
                nonlocal fed
                for _ in range(expected // 20):
                    if fed < expected:
                        body = b"%d" % fed + (LARGE if fed % 7 == 0 else b"")
                        await feeder.basic_publish("", "q", body, PERSISTENT)
                        fed += 1
                await nap()

            handed: list[tuple[int, bool]] = []
            lock = asyncio.Lock()
            tag = await channel.basic_consume("q", auto_ack=auto_ack) if how == "delivery" else ""
            messages = channel.consume("q", auto_ack=auto_ack)

            async def take(message: aio.Message | None) -> None:
                if message is not None:
                    handed.append((int(message.body.rstrip(b"\0")), message.redelivered))
                    if not auto_ack:
                        channel._settle_soon(message.delivery_tag, message.delivery_tag, False)

            async def operation() -> None:
                if how == "get":
                    await take(await channel.basic_get("q", auto_ack=auto_ack))
                elif how == "delivery":
                    async with lock:  # one task at a time waits for a consumer's messages
                        await take(await channel.next_delivery(tag, timeout=0.05))
                elif how == "iterate":
                    async with lock:
                        try:
                            async with asyncio.timeout(0.05):
                                await take(await anext(messages))
                        except TimeoutError:
                            pass
                else:
                    batch = await channel.get_batch("q", 5, auto_ack=auto_ack, timeout=0.01)
                    rows: list[dict[str, Any]] = batch.select(
                        ["body", "redelivered", "delivery_tag"]
                    ).to_pylist()
                    handed.extend(
                        (int(row["body"].rstrip(b"\0")), row["redelivered"]) for row in rows
                    )
                    if rows and not auto_ack:
                        tags = [row["delivery_tag"] for row in rows]
                        channel._settle_soon(tags[0], tags[-1], False)

            async with asyncio.timeout(LIMIT):
                await feed()
                cancelled = await storm(seed, [operation] * 1500, feed)
            assert cancelled > 0
            assert handed
            await messages.aclose()
            if tag:
                await channel.basic_cancel(tag)
            left = await drain(channel)
            status = await store.queue_status("q")
            assert (status["messages_ready"], status["messages_unacked"]) == (0, 0)
            everything = sorted(i for i, _ in handed + left)
            assert everything == list(range(fed))  # each once: nothing lost, nothing twice
            await feeder.close()

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(2))
def test_a_storm_over_several_channels_that_are_closed_on_the_way(path: Path, seed: int) -> None:
    """A message that was taken and not acknowledged comes again, flagged; what was acknowledged
    does not."""

    async def main() -> None:
        chance = random.Random(seed)
        async with await aio.open(path) as store, await store.channel() as channel:
            await channel.queue_declare("q", durable=True)
            for i in range(2000):
                await channel.basic_publish("", "q", b"%d" % i, PERSISTENT)
            seen: set[int] = set()
            settled: set[int] = set()

            async def consume() -> None:
                async with await store.channel() as own:
                    await own.basic_qos(chance.randrange(1, 20))
                    async for message in own.consume("q", inactivity_timeout=0.5):
                        number = int(message.body)
                        assert number not in settled
                        assert message.redelivered or number not in seen
                        seen.add(number)
                        if chance.random() < 0.9:
                            await message.ack()
                            settled.add(number)
                        await asyncio.sleep(0)

            async with asyncio.timeout(LIMIT):
                while len(settled) < 2000:
                    tasks = [asyncio.create_task(consume()) for _ in range(5)]
                    await asyncio.sleep(chance.random() / 20)
                    for task in tasks:
                        task.cancel()
                    results = await asyncio.gather(*tasks, return_exceptions=True)
                    assert not [r for r in results if isinstance(r, Exception)], results
                    if not (await store.queue_status("q"))["messages_ready"]:
                        break
            # An ack that was cancelled may have been done.
            assert (await store.queue_status("q"))["messages_unacked"] == 0
            assert seen == set(range(2000))

    asyncio.run(main())

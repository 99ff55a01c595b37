"""Cancelling at random: no message is lost, none comes twice unflagged, nothing is left behind.

The seed of a storm is an argument of its test; the gate has the first, the nightly tier the others.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from pyqstore import aio

from ..support import PERSISTENT

LARGE = bytes(6000)
LIMIT = 100
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2)))


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


@pytest.mark.parametrize("seed", SEEDS)
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
                    assert channel._events.confirms is not None
                    assert len(channel._events.confirms) == 0
            assert cancelled > 0
            there = await drain(channel)
            assert len({i for i, _ in there}) == len(there)
            assert done <= {i for i, _ in there}
            assert [i for i, _ in there] == sorted(i for i, _ in there)

    asyncio.run(main())


class Ledger:
    """What was handed out, and what became of it: settled are those of which it is known."""

    def __init__(self, channel: aio.Channel, chance: random.Random) -> None:
        self._channel = channel
        self._chance = chance
        self._mine: dict[int, int] = {}
        self.seen: set[int] = set()
        self.settled: set[int] = set()

    def hand_out(self, tag: int, body: bytes, redelivered: bool) -> None:
        number = int(body.rstrip(b"\0"))
        assert number not in self.settled, f"{number} came after it was acknowledged"
        assert redelivered or number not in self.seen, f"{number} came twice"
        self.seen.add(number)
        self._mine[tag] = number

    async def settle(self, tag: int) -> None:
        """Acknowledge all or put all back; 0: all that was handed out, else up to that tag."""
        claimed = [mine for mine in self._mine if tag == 0 or mine <= tag]
        numbers = [self._mine.pop(mine) for mine in claimed]
        if self._chance.random() < 0.2:
            await self._channel.basic_nack(tag, multiple=True, requeue=True)
        else:
            await self._channel.basic_ack(tag, multiple=True)
            self.settled.update(numbers)


Take = Callable[[bool], Awaitable[list[tuple[int, bytes, bool]]]]


def receiving(channel: aio.Channel, how: str, tag: str, messages: aio.Messages) -> Take:
    """Take what comes next; nothing when that takes long."""

    async def take(auto_ack: bool) -> list[tuple[int, bytes, bool]]:
        message: aio.Message | None = None
        if how == "batch":
            batch = await channel.get_batch("q", 5, auto_ack=auto_ack, timeout=0.01)
            columns = batch.select(["delivery_tag", "body", "redelivered"]).to_pydict().values()
            return list(zip(*columns, strict=True))
        if how == "get":
            message = await channel.basic_get("q", auto_ack=auto_ack)
        elif how == "delivery":
            message = await channel.next_delivery(tag, timeout=0.05)
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    message = await anext(messages)
        if message is None:
            return []
        return [(message.delivery_tag, message.body, message.redelivered)]

    return take


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("auto_ack", [False, True])
@pytest.mark.parametrize("how", ["get", "batch", "delivery", "iterate"])
async def test_what_was_not_handed_out_is_still_there(
    path: Path, seed: int, auto_ack: bool, how: str
) -> None:
    """With ``auto_ack`` each comes once; else what was acknowledged does not come again, and what
    does is flagged."""
    chance = random.Random(seed)
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

        ledger = Ledger(channel, chance)
        tag = await channel.basic_consume("q", auto_ack=auto_ack) if how == "delivery" else ""
        messages = channel.consume("q", auto_ack=auto_ack)
        take = receiving(channel, how, tag, messages)
        lock = asyncio.Lock()

        async def receive() -> None:
            taken = await take(auto_ack)
            for delivery in taken:
                ledger.hand_out(*delivery)
            if auto_ack:
                ledger.settled |= ledger.seen
            elif taken:
                # Only one who is alone knows that its tag is not settled yet.
                alone = lock.locked() and chance.random() < 0.5
                await ledger.settle(taken[-1][0] if alone else 0)

        async def operation() -> None:
            if how in ("get", "batch"):
                await receive()
            else:
                async with lock:  # one task at a time waits for a consumer's messages
                    await receive()

        async with asyncio.timeout(LIMIT):
            await feed()
            cancelled = await storm(seed, [operation] * 1500, feed)
        assert cancelled > 0
        assert ledger.seen
        await messages.aclose()
        if tag:
            await channel.basic_cancel(tag)
        await channel.basic_recover()  # what a cancelled call left unsettled
        left = await drain(channel)
        for number, redelivered in left:
            ledger.hand_out(0, b"%d" % number, redelivered)
        status = await store.queue_status("q")
        assert (status["messages_ready"], status["messages_unacked"]) == (0, 0)
        assert ledger.seen == set(range(fed))  # nothing is lost
        assert len({number for number, _ in left}) == len(left)
        await feeder.close()


@pytest.mark.parametrize("seed", SEEDS[:2])
async def test_a_storm_over_several_channels_that_are_closed_on_the_way(
    path: Path, seed: int
) -> None:
    """A message that was taken and not acknowledged comes again, flagged; what was acknowledged
    does not."""
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
                async for message in own.consume("q"):
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

"""The actors of the mixed workload.  Each is a coroutine that works on either face of the store.

On the synchronous face nothing is ever waited for with ``await``, so a thread runs the coroutine to
its end; on the other one a task does.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from pyqstore import aio

from .messages import Copy, Name, body_of, copy_of, random_size
from .publisher import Publish, Publisher, copies_of, done
from .queues import (
    DEAD,
    FAN,
    FAN_HOMES,
    KINDS,
    LOG,
    LOG_ARGUMENTS,
    TARGETS,
    TRANSACTION_TARGETS,
    homes_of,
    kind_of,
)
from .story import Story

Delivery = tuple[int, Copy]
_READY_MOST = 400  # of a queue, before publishers leave it alone
_STEP_BYTES_MOST = 4_000_000


def _route_to(target: str) -> tuple[str, str]:
    """The exchange and the key by which messages come to ``target``."""
    return (FAN, "") if target == FAN else ("", target)


@dataclass
class Stage:
    """What actors share."""

    store: Any
    story: Story
    life: int
    stop: threading.Event
    repeats: list[tuple[str, list[Copy]]]


class Actor(ABC):
    """Works step by step until the stage's end."""

    def __init__(self, stage: Stage, name: str, seed: str) -> None:
        self.stage, self.name = stage, name
        self.store, self.tell = stage.store, stage.story.tell
        self.chance = random.Random(seed)
        self.numbers = 0

    async def run(self) -> None:
        await self.begin()
        while not self.stage.stop.is_set():
            await self.step()
            await self.pause(self.chance.choice((0.0, 0.0, 0.002)))

    @abstractmethod
    async def begin(self) -> None:
        """Open channels, declare queues."""

    @abstractmethod
    async def step(self) -> None:
        """Do one thing."""

    async def pause(self, seconds: float) -> None:
        if isinstance(self.store, aio.Store):
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)

    async def channel(self) -> Any:
        return await done(self.store.channel())

    async def publisher(self) -> Publisher:
        channel = await self.channel()
        await done(channel.confirm_select())
        return Publisher(channel, self.stage.story)

    def publish_to(self, exchange: str, key: str, size: int | None = None) -> Publish:
        self.numbers += 1
        bytes_of = random_size(self.chance) if size is None else size
        return Publish(exchange, key, str(Name(self.stage.life, self.name, self.numbers, bytes_of)))

    def publishes(self, targets: Sequence[str], count: int) -> list[Publish]:
        """Up to ``count`` messages for random ones of ``targets``."""
        made: list[Publish] = []
        room = _STEP_BYTES_MOST
        while len(made) < count and room > 0:
            target = self.chance.choice(targets)
            made.append(self.publish_to(*_route_to(target)))
            room -= len(body_of(made[-1].name))
        return made

    def check(self, queue: str, name: str | None, body: bytes) -> None:
        if name is None or body_of(name) != body:
            self.tell(
                "wrong", f"{queue}: {name!r} came with {len(body)} bytes that are not its own"
            )

    async def take(self, channel: Any, queue: str, count: int) -> list[Delivery]:
        """Up to ``count`` messages of a queue, by get, by a consumer, or as a batch."""
        how = self.chance.choice(("get", "get", "consume", "batch"))
        if how == "get":
            messages = await self._get(channel, queue, count)
        elif how == "consume":
            messages = await self._consume(channel, queue, count)
        else:
            return await self._get_batch(channel, queue, count)
        taken = []
        for message in messages:
            self.check(queue, message.properties.message_id, message.body)
            name, headers = message.properties.message_id, message.properties.headers
            taken.append((message.delivery_tag, copy_of(queue, name, headers)))
        return taken

    async def _get(self, channel: Any, queue: str, count: int) -> list[Any]:
        messages: list[Any] = []
        while len(messages) < count:
            message = await done(channel.basic_get(queue))
            if message is None:
                break
            self._got(queue, message)
            messages.append(message)
        return messages

    async def _consume(self, channel: Any, queue: str, count: int) -> list[Any]:
        messages: list[Any] = []
        await done(channel.basic_qos(prefetch_count=self.chance.randrange(1, 2 * count + 1)))
        tag = await done(channel.basic_consume(queue))
        while len(messages) < count:
            message = await done(channel.next_delivery(tag, 0.005))
            if message is None:
                break
            self._got(queue, message)
            messages.append(message)
        await done(channel.basic_cancel(tag))
        await done(channel.basic_qos(prefetch_count=0))
        return messages

    def _got(self, queue: str, message: Any) -> None:
        properties = message.properties
        self.tell("got", queue, [copy_of(queue, properties.message_id, properties.headers)])

    async def _get_batch(self, channel: Any, queue: str, count: int) -> list[Delivery]:
        batch = await done(channel.get_batch(queue, count))
        rows = batch.select(["delivery_tag", "message_id", "body", "headers"]).to_pylist()
        copies = [copy_of(queue, row["message_id"], dict(row["headers"] or ())) for row in rows]
        self.tell("got", queue, copies)
        for row in rows:
            self.check(queue, row["message_id"], row["body"])
        return [(row["delivery_tag"], copy) for row, copy in zip(rows, copies, strict=True)]

    def tell_drop(self, queue: str, copies: list[Copy]) -> None:
        """Before a reject without requeue."""
        self.tell("reject" if kind_of(queue).letters else "settle", copies)


class Publishing(Actor):
    """Publishes to all kinds of queues, and to several at once: message by message, or batches."""

    async def begin(self) -> None:
        self.channel_for_counts = await self.channel()
        self.own = await self.publisher()

    async def step(self) -> None:
        targets = [name for name in (*TARGETS, FAN) if await self._has_room(name)]
        if not targets:
            await self.pause(0.005)
            return
        some = self.chance.sample(targets, self.chance.randrange(1, len(targets) + 1))
        if self.chance.random() < 0.6:
            await self.own.one_by_one(self.publishes(some, self.chance.randrange(1, 20)))
        else:
            await self.own.batch(self.publishes(some, self.chance.randrange(1, 120)))

    async def _has_room(self, target: str) -> bool:
        for queue in homes_of(*_route_to(target)):
            there = await done(self.channel_for_counts.queue_declare(queue, passive=True))
            if there.message_count > _READY_MOST:
                return False
        return True


class Consuming(Actor):
    """Takes messages of all queues and settles them in every way there is."""

    async def begin(self) -> None:
        self.own = await self.channel()
        self.settled: list[Copy] = []

    async def step(self) -> None:
        queue = self.chance.choice((*KINDS, DEAD, DEAD))
        count = self.chance.choice((1, 3, 10, 60))
        if self.chance.random() < 0.1:
            await self._take_for_good(queue, count)
        else:
            taken = await self.take(self.own, queue, count)
            if taken:
                await self._settle(queue, taken)
        if self.chance.random() < 0.2:
            await self._make_durable()

    async def _take_for_good(self, queue: str, count: int) -> None:
        self.tell("auto", queue, count)
        if self.chance.random() < 0.5:
            batch = await done(self.own.get_batch(queue, count, auto_ack=True))
            rows = batch.select(["message_id", "body", "headers"]).to_pylist()
            found = [(r["message_id"], r["body"], dict(r["headers"] or ())) for r in rows]
        else:
            found = []
            while len(found) < count:
                message = await done(self.own.basic_get(queue, auto_ack=True))
                if message is None:
                    break
                properties = message.properties
                found.append((properties.message_id, message.body, properties.headers))
        copies = [copy_of(queue, name, headers) for name, _, headers in found]
        self.tell("auto-got", queue, count, copies)
        for name, body, _ in found:
            self.check(queue, name, body)
        self.settled += copies

    async def _settle(self, queue: str, taken: list[Delivery]) -> None:
        tags, copies = [tag for tag, _ in taken], [copy for _, copy in taken]
        how = self.chance.choice(
            ("ack", "ack", "ack up to", "ack up to", "ack up to", "some", "nack", "reject", "leave")
        )
        if how == "ack":
            self.tell("settle", copies)
            for tag in self.chance.sample(tags, len(tags)):
                await done(self.own.basic_ack(tag))
            self.settled += copies
        elif how == "ack up to":
            self.tell("settle", copies)
            await done(self.own.basic_ack(tags[-1], multiple=True))
            self.settled += copies
        elif how == "some":
            await self._settle_some(queue, taken)
        elif how == "nack":
            self.tell("requeue", copies)
            await done(self.own.basic_nack(tags[-1], multiple=True))
        elif how == "reject":
            self.tell_drop(queue, copies)
            await done(self.own.basic_nack(tags[-1], multiple=True, requeue=False))
        else:
            await self._leave(copies)

    async def _settle_some(self, queue: str, taken: list[Delivery]) -> None:
        for tag, copy in taken:
            how = self.chance.choice(("ack", "ack", "requeue", "drop"))
            if how == "ack":
                self.tell("settle", [copy])
                await done(self.own.basic_ack(tag))
                self.settled.append(copy)
            elif how == "requeue":
                self.tell("requeue", [copy])
                await done(self.own.basic_reject(tag))
            else:
                self.tell_drop(queue, [copy])
                await done(self.own.basic_reject(tag, requeue=False))

    async def _leave(self, copies: list[Copy]) -> None:
        self.tell("requeue", copies)
        if self.chance.random() < 0.5:
            await done(self.own.basic_recover())
        else:
            await done(self.own.close())
            self.own = await self.channel()

    async def _make_durable(self) -> None:
        settled, self.settled = self.settled, []
        await done(self.store.sync())
        self.tell("durable", settled)


class Transacting(Actor):
    """Publishes, acknowledges and rejects in one step; repeats what a crash left open."""

    async def begin(self) -> None:
        self.own = await self.channel()
        await done(self.own.tx_select())
        for key, copies in self.stage.repeats:
            self.tell("repeat", key, copies)
            for name, home in copies:
                await self._publish(Publish("", home, name))
            self.tell("repeated", key, await done(self.own.tx_commit(key=key)))

    async def _publish(self, publish: Publish) -> None:
        await done(
            self.own.basic_publish(
                publish.exchange, publish.key, body_of(publish.name), publish.properties
            )
        )

    async def step(self) -> None:
        taken: list[Delivery] = []
        queue = self.chance.choice((*KINDS, DEAD))
        if self.chance.random() < 0.5:
            taken = await self.take(self.own, queue, self.chance.randrange(1, 6))
        publishes = self.publishes(TRANSACTION_TARGETS, self.chance.randrange(0, 6))
        for publish in publishes:
            await self._publish(publish)
        acked, rejected = await self._settle(queue, taken)
        if self.chance.random() < 0.2:
            await self._roll_back(taken)
            return
        with_key = self.chance.random() < 0.7
        key = f"{'key' if with_key else 'none'}.{self.stage.life}.{self.name}.{self.numbers}"
        self.numbers += 1
        self.tell("begin", key, copies_of(publishes), acked, rejected)
        committed = await done(self.own.tx_commit(key=key if with_key else None))
        self.tell("commit", key)
        if committed is not True:
            self.tell("wrong", f"the transaction {key} is said to be a repetition")

    async def _settle(self, queue: str, taken: list[Delivery]) -> tuple[list[Copy], list[Copy]]:
        acked: list[Copy] = []
        rejected: list[Copy] = []
        for tag, copy in taken:
            if self.chance.random() < 0.7:
                await done(self.own.basic_ack(tag))
                acked.append(copy)
            else:
                await done(self.own.basic_reject(tag, requeue=False))
                (rejected if kind_of(queue).letters else acked).append(copy)
        return acked, rejected

    async def _roll_back(self, taken: list[Delivery]) -> None:
        await done(self.own.tx_rollback())
        if taken:
            self.tell("requeue", [copy for _, copy in taken])
            await done(self.own.basic_recover())


class Owning(Actor):
    """Has a queue of its own, which it purges, deletes and declares anew."""

    async def begin(self) -> None:
        self.queue = f"own.{self.name}"
        self.own, self.confirmed = await self.channel(), await self.publisher()
        await self._declare()
        self.settled: list[Copy] = []

    async def _declare(self) -> None:
        self.tell("declare", self.queue)
        await done(self.own.queue_declare(self.queue, durable=True))
        self.tell("declared", self.queue)

    async def step(self) -> None:
        how = self.chance.random()
        if how < 0.5:
            publishes = self.publishes([self.queue], self.chance.randrange(1, 30))
            await (
                self.confirmed.one_by_one(publishes)
                if how < 0.3
                else self.confirmed.batch(publishes)
            )
        elif how < 0.8:
            taken = await self.take(self.own, self.queue, self.chance.randrange(1, 30))
            if taken:
                copies = [copy for _, copy in taken]
                self.tell("settle", copies)
                await done(self.own.basic_ack(taken[-1][0], multiple=True))
                self.settled += copies
        elif how < 0.88:
            await self._purge()
        elif how < 0.93:
            self.tell("delete", self.queue)
            await done(self.own.queue_delete(self.queue))
            self.tell("deleted", self.queue)
            self.settled.clear()
            await self._declare()
        else:
            settled, self.settled = self.settled, []
            await done(self.store.sync())
            self.tell("durable", settled)

    async def _purge(self) -> None:
        held = await self.take(self.own, self.queue, 2)
        self.tell("purge", self.queue, [copy for _, copy in held])
        await done(self.own.queue_purge(self.queue))
        self.tell("purged", self.queue)
        self.tell("requeue", [copy for _, copy in held])
        await done(self.own.basic_recover())


class Maintaining(Actor):
    """Makes checkpoints all the time, syncs, and switches a queue between its modes."""

    async def begin(self) -> None:
        return None

    async def step(self) -> None:
        how = self.chance.random()
        if how < 0.5:
            await done(self.store.checkpoint())
        elif how < 0.8:
            await done(self.store.sync())
        else:
            mode = self.chance.choice(("lazy", "default"))
            await done(self.store.set_queue_mode("plain.1", mode))
        await self.pause(self.chance.uniform(0, 0.03))


CAST: tuple[tuple[type[Actor], int], ...] = (
    (Publishing, 2),
    (Consuming, 3),
    (Transacting, 2),
    (Owning, 1),
    (Maintaining, 1),
)


def cast_of(stage: Stage, seed: str) -> list[Actor]:
    """All actors.  Only one of them repeats transactions."""
    actors: list[Actor] = []
    for kind, count in CAST:
        for place in range(count):
            name = f"{kind.__name__[0].lower()}{place}"
            actors.append(kind(stage, name, f"{seed} {name}"))
    for actor in actors:
        if actor.name == "t1":
            actor.stage = Stage(stage.store, stage.story, stage.life, stage.stop, [])
    return actors


async def act(actor: Actor) -> None:
    """Run an actor; what it raises is wrong, because nothing here may fail."""
    try:
        await actor.run()
    except Exception as error:
        actor.tell("wrong", f"{actor.name}: {type(error).__name__}: {error}")
        raise


def at_once(work: Coroutine[Any, Any, None]) -> None:
    """Run what never waits, because it is on the synchronous face."""
    with contextlib.suppress(StopIteration):
        work.send(None)
        raise AssertionError("the synchronous face waited")


async def declare_all(channel: Any) -> None:
    """Queues, and the exchange that leads to several."""
    await done(channel.exchange_declare(FAN, "fanout", durable=True))
    await done(channel.queue_declare(LOG, durable=True, arguments=LOG_ARGUMENTS))
    for name, kind in KINDS.items():
        await done(channel.queue_declare(name, durable=True, arguments=kind.arguments))
        if name in FAN_HOMES:
            await done(channel.queue_bind(name, FAN))

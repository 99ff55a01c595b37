"""Counters of channels, exchanges, queues, and of exchange and queue together: each verb moves
those that it is said to move, and no other."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import pyqstore
from pyqstore import aio

from ..support import PERSISTENT, wait_until

Moves = dict[str, dict[Any, dict[str, int]]]
Verb = Callable[["Scene"], Any]
Case = tuple[Verb, Verb, Moves]

BATCH = pyarrow.table({"body": [b"1", b"2", b"3"]})
KEYED = pyarrow.table({"body": [b"1", b"2", b"3"], "routing_key": ["q", "gone", "q"]})


class Scene:
    """A channel, synchronous or not, whose verbs are awaited where they must be."""

    def __init__(self, store: Any, channel: Any) -> None:
        self.store = store
        self.channel = channel

    async def call(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        result = getattr(self.channel, name)(*arguments, **keywords)
        return await result if inspect.isawaitable(result) else result

    async def counters(self) -> dict[str, Any]:
        result = self.store.stats(detail=True)
        stats = await result if inspect.isawaitable(result) else result
        return {part: stats[part] for part in ("channels", "exchanges", "queues", "routes")}

    async def put(self, count: int = 1, key: str = "q", exchange: str = "") -> None:
        for _ in range(count):
            await self.call("basic_publish", exchange, key, b"x", PERSISTENT)

    async def take(self, count: int = 1, queue: str = "q", auto_ack: bool = False) -> int:
        """The last tag."""
        for _ in range(count):
            message = await self.call("basic_get", queue, auto_ack)
            assert message is not None
        return int(message.delivery_tag)

    async def consume(self, count: int, auto_ack: bool) -> int:
        """The last tag of so many deliveries to a consumer."""
        tags: list[int] = []

        def note(message: Any) -> None:
            tags.append(message.delivery_tag)

        tag = await self.call("basic_consume", "q", note, auto_ack=auto_ack)
        while len(tags) < count:
            if isinstance(self.channel, aio.Channel):
                await asyncio.sleep(0.001)
            else:
                self.channel.process_events(1)
        await self.call("basic_cancel", tag)
        return tags[-1]


async def nothing(_scene: Scene) -> None:
    pass


def puts(count: int) -> Verb:
    return lambda scene: scene.put(count)


async def publish_unroutable(scene: Scene) -> None:
    await scene.put(2, key="nowhere", exchange="amq.direct")


async def publish_mandatory(scene: Scene) -> None:
    for _ in range(2):
        await scene.call("basic_publish", "amq.direct", "nowhere", b"x", PERSISTENT, mandatory=True)


async def publish_to_fanout(scene: Scene) -> None:
    await scene.put(3, exchange="amq.fanout")


async def publish_by_an_exchange_in_between(scene: Scene) -> None:
    await scene.call("exchange_bind", "amq.fanout", "amq.topic", "#")
    await scene.put(2, exchange="amq.topic")


async def publish_batch(scene: Scene) -> None:
    await scene.call("publish_batch", BATCH, "amq.fanout", "")


async def publish_keys(scene: Scene) -> None:
    await scene.call("publish_batch", KEYED)


async def confirm(scene: Scene) -> None:
    await scene.call("confirm_select")
    await scene.put(3)
    await scene.call("wait_for_confirms", 5)


async def confirm_all(scene: Scene) -> None:
    await scene.call("confirm_select")
    await scene.put(1, exchange="amq.fanout")
    await scene.call("publish_batch", BATCH, "amq.fanout")
    await scene.call("publish_batch", KEYED)
    await scene.call("basic_publish", "", "q", b"transient")
    await scene.call("wait_for_confirms", 5)


async def commit(scene: Scene) -> None:
    await scene.call("tx_select")
    await scene.put(2)
    await scene.put(1, key="other")
    await publish_keys(scene)
    await scene.call("basic_ack", await scene.take())
    before = (await scene.counters())["queues"]
    assert (before["q"]["publish"], before["q"]["ack"], before["other"]["publish"]) == (1, 0, 0)
    await scene.call("tx_commit")


async def roll_back(scene: Scene) -> None:
    await scene.call("tx_select")
    await scene.put(2)
    await publish_keys(scene)
    await scene.call("basic_ack", await scene.take())
    await scene.call("tx_rollback")


async def get(scene: Scene) -> None:
    await scene.take(2)


async def get_without_ack(scene: Scene) -> None:
    await scene.take(2, auto_ack=True)


async def get_nothing(scene: Scene) -> None:
    assert await scene.call("basic_get", "q") is None


async def get_batch(scene: Scene) -> None:
    assert (await scene.call("get_batch", "q", 2)).num_rows == 2


async def get_batch_without_ack(scene: Scene) -> None:
    assert (await scene.call("get_batch", "q", 2, auto_ack=True)).num_rows == 2


async def get_empty_batch(scene: Scene) -> None:
    assert (await scene.call("get_batch", "q")).num_rows == 0


async def deliver(scene: Scene) -> None:
    await scene.consume(2, auto_ack=False)


async def deliver_without_ack(scene: Scene) -> None:
    await scene.consume(2, auto_ack=True)


async def taken(scene: Scene) -> None:
    await scene.put(3)
    await scene.take(3)


async def returned(scene: Scene) -> None:
    await taken(scene)
    await scene.call("basic_nack", 3, multiple=True)


async def ack_one(scene: Scene) -> None:
    await scene.call("basic_ack", 2)


async def ack_all(scene: Scene) -> None:
    await scene.call("basic_ack", 3, multiple=True)


async def put_back(scene: Scene) -> None:
    await scene.call("basic_nack", 2, multiple=True)


async def put_back_later(scene: Scene) -> None:
    await scene.call("basic_nack", 2, delay=60)


async def reject(scene: Scene) -> None:
    await scene.call("basic_reject", 2, requeue=False)


async def recover(scene: Scene) -> None:
    await scene.call("basic_recover")


async def taken_with_dead_letters(scene: Scene) -> None:
    await scene.put(3, key="dies")
    await scene.take(3, "dies")


async def reject_in_transaction(scene: Scene) -> None:
    await scene.call("tx_select")
    await scene.call("basic_nack", 2, multiple=True, requeue=False)
    await scene.call("tx_commit")


async def fill(scene: Scene) -> None:
    await scene.put(3, key="full")


def on(queue: str, **counts: int) -> dict[str, dict[Any, dict[str, int]]]:
    """What the channel and the queue count alike."""
    return {"channels": {1: counts}, "queues": {queue: counts}}


def published(exchange: str, out: dict[str, int], count: int, **more: int) -> Moves:
    moves: Moves = {"channels": {1: {"publish": count} | more}, "exchanges": {}}
    moves["exchanges"][exchange] = {"publish_in": count} | more
    if out:
        moves["exchanges"][exchange]["publish_out"] = sum(out.values())
        moves["queues"] = {queue: {"publish": copies} for queue, copies in out.items()}
        moves["routes"] = {(exchange, queue): {"publish": n} for queue, n in out.items()}
    return moves


def confirmed(exchange: str, out: dict[str, int], count: int) -> Moves:
    return {
        "channels": {1: {"confirm": count}},
        "exchanges": {exchange: {"confirm": count}},
        "queues": {queue: {"confirm": copies} for queue, copies in out.items()},
        "routes": {(exchange, queue): {"confirm": copies} for queue, copies in out.items()},
    }


def joined(*moves: Moves) -> Moves:
    sums: Moves = {}
    for each in moves:
        for part, owners in each.items():
            for owner, counts in owners.items():
                into = sums.setdefault(part, {}).setdefault(owner, {})
                for name, count in counts.items():
                    into[name] = into.get(name, 0) + count
    return sums


CASES: dict[str, Case] = {
    "publish": (nothing, puts(3), published("", {"q": 3}, 3)),
    "publish unroutable": (
        nothing,
        publish_unroutable,
        published("amq.direct", {}, 2, drop_unroutable=2),
    ),
    "publish mandatory": (
        nothing,
        publish_mandatory,
        published("amq.direct", {}, 2, return_unroutable=2),
    ),
    "fanout": (nothing, publish_to_fanout, published("amq.fanout", {"q": 3, "other": 3}, 3)),
    "exchange to exchange": (
        nothing,
        publish_by_an_exchange_in_between,
        published("amq.topic", {"q": 2, "other": 2}, 2),
    ),
    "publish_batch": (nothing, publish_batch, published("amq.fanout", {"q": 3, "other": 3}, 3)),
    "publish_batch by key": (nothing, publish_keys, published("", {"q": 2}, 3, drop_unroutable=1)),
    "confirm": (nothing, confirm, joined(published("", {"q": 3}, 3), confirmed("", {"q": 3}, 3))),
    "confirm of a fanout, a batch and what needs no disk": (
        nothing,
        confirm_all,
        joined(
            published("amq.fanout", {"q": 4, "other": 4}, 4),
            published("", {"q": 3}, 4, drop_unroutable=1),
            confirmed("amq.fanout", {"q": 4, "other": 4}, 4),
            confirmed("", {"q": 3}, 4),
        ),
    ),
    "commit": (
        puts(1),
        commit,
        joined(published("", {"q": 4, "other": 1}, 6, drop_unroutable=1), on("q", get=1, ack=1)),
    ),
    "rollback": (puts(1), roll_back, on("q", get=1)),
    "get": (puts(3), get, on("q", get=2)),
    "get without ack": (puts(3), get_without_ack, on("q", get_no_ack=2)),
    "get of nothing": (nothing, get_nothing, on("q", get_empty=1)),
    "get_batch": (puts(3), get_batch, on("q", get=2)),
    "get_batch without ack": (puts(3), get_batch_without_ack, on("q", get_no_ack=2)),
    "get_batch of nothing": (nothing, get_empty_batch, on("q", get_empty=1)),
    "deliver": (puts(2), deliver, on("q", deliver=2)),
    "deliver without ack": (puts(2), deliver_without_ack, on("q", deliver_no_ack=2)),
    "deliver again": (returned, get, on("q", get=2, redeliver=2)),
    "get_batch again": (returned, get_batch, on("q", get=2, redeliver=2)),
    "ack": (taken, ack_one, on("q", ack=1)),
    "ack multiple": (taken, ack_all, on("q", ack=3)),
    "nack": (taken, put_back, on("q", requeue=2)),
    "nack with delay": (taken, put_back_later, on("q", requeue=1)),
    "reject": (taken, reject, on("q", reject=1)),
    "recover": (taken, recover, on("q", requeue=3)),
    "reject with dead letters": (
        taken_with_dead_letters,
        reject,
        joined(on("dies", reject=1), {"queues": {"dies": {"dead_lettered": 1}}}),
    ),
    "reject in a transaction": (
        taken_with_dead_letters,
        reject_in_transaction,
        joined(on("dies", reject=2), {"queues": {"dies": {"dead_lettered": 2}}}),
    ),
    "a full queue": (
        nothing,
        fill,
        joined(published("", {"full": 3}, 3), {"queues": {"full": {"refused": 1}}}),
    ),
}

# pyqstore.aio acknowledges when it hands a message out: until then a cancelled task loses none.
ASYNCHRONOUS: dict[str, Case] = CASES | {
    "get without ack": (puts(3), get_without_ack, on("q", get=2, ack=2)),
    "get_batch without ack": (puts(3), get_batch_without_ack, on("q", get=2, ack=2)),
    "deliver without ack": (puts(2), deliver_without_ack, on("q", deliver=2, ack=2)),
}


def flat(counters: dict[str, Any]) -> dict[tuple[Any, ...], int]:
    """Counters by part, owner and name; the sum of deliveries is not one."""
    routes = {
        (exchange, queue): counts
        for exchange, queues in counters["routes"].items()
        for queue, counts in queues.items()
    }
    return {
        (part, owner, name): count
        for part, owners in (counters | {"routes": routes}).items()
        for owner, counts in owners.items()
        for name, count in counts.items()
        if name != "deliver_get"
    }


def moved_since(before: dict[tuple[Any, ...], int], now: dict[str, Any]) -> dict[Any, int]:
    after = flat(now)
    return {key: n - before.get(key, 0) for key, n in after.items() if n != before.get(key, 0)}


async def check(scene: Scene, case: Case) -> None:
    before_verb, verb, moves = case
    for queue, arguments in {
        "q": {},
        "other": {},
        "dies": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "other"},
        "full": {"x-max-length": 2, "x-overflow": "reject-publish"},
    }.items():
        await scene.call("queue_declare", queue, durable=True, arguments=arguments)
    for queue in ("q", "other"):
        await scene.call("queue_bind", queue, "amq.fanout")
    await before_verb(scene)
    before = flat(await scene.counters())
    await verb(scene)
    expected = {
        (part, owner, name): count
        for part, owners in moves.items()
        for owner, counts in owners.items()
        for name, count in counts.items()
    }
    end = time.monotonic() + 60  # a thread of the store may be moving dead letters
    while (moved := moved_since(before, await scene.counters())) != expected:
        if time.monotonic() >= end:
            break
        await asyncio.sleep(0.01)
    assert moved == expected


@pytest.mark.parametrize("name", CASES)
def test_a_verb_moves_its_counters_alone(
    store: pyqstore.Store, channel: pyqstore.Channel, name: str
) -> None:
    asyncio.run(check(Scene(store, channel), CASES[name]))


@pytest.mark.parametrize("name", CASES)
async def test_a_verb_of_an_asynchronous_channel_moves_its_counters_alone(
    path: Path, name: str
) -> None:
    async with await aio.open(path) as store, await store.channel() as channel:
        await check(Scene(store, channel), ASYNCHRONOUS[name])


def test_every_counter_is_there_from_the_start(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q")
    stats = store.stats(detail=True)
    assert stats.channels == {channel.number: dict.fromkeys(stats.channels[1], 0)}
    assert set(stats.queues["q"]) >= {"publish", "deliver_get", "get_empty", "expired"}
    assert not any(stats.queues["q"].values())
    assert set(stats.exchanges) == set(store.exchanges())
    assert stats.routes == {}
    assert "channels" not in store.stats()


def test_deliver_get_is_the_sum_of_all_that_was_taken(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q", durable=True)
    for _ in range(3):
        channel.basic_publish("", "q", b"x")
    channel.basic_get("q")
    channel.basic_get("q", auto_ack=True)
    next(iter(channel.consume("q")))
    stats = store.stats(detail=True)
    assert stats.queues["q"]["deliver_get"] == 3 == stats.channels[1]["deliver_get"]


def test_counters_begin_anew_when_the_store_is_opened(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"x", PERSISTENT)
        store.sync()
    with pyqstore.open(path) as store:
        stats = store.stats(detail=True)
        assert stats.queues["q"]["publish"] == 0
        assert stats.channels == {}
        assert stats.routes == {}


def test_what_an_exchange_that_was_deleted_published_stays_with_its_queue(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q")
    channel.exchange_declare("e", "fanout")
    for exchange in ("e", "amq.fanout"):
        channel.queue_bind("q", exchange)
        channel.basic_publish(exchange, "", b"x")
    channel.exchange_delete("e")
    stats = store.stats(detail=True)
    assert stats.queues["q"]["publish"] == 2
    assert stats.routes == {"amq.fanout": {"q": {"publish": 1, "confirm": 0}}}
    channel.queue_delete("q")
    stats = store.stats(detail=True)
    assert stats.exchanges["amq.fanout"]["publish_out"] == 1
    assert "q" not in stats.queues
    assert stats.routes == {}
    channel.queue_declare("q")
    assert store.stats(detail=True).queues["q"]["publish"] == 0


def test_channels_are_told_apart_and_go_when_they_close(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q")
    with store.channel() as other:
        other.basic_publish("", "q", b"x")
        stats = store.stats(detail=True)
        assert stats.channels[other.number]["publish"] == 1
        assert stats.channels[channel.number]["publish"] == 0
        assert other.number == channel.number + 1
    assert list(store.stats(detail=True).channels) == [channel.number]


def test_what_closed_channels_counted_stays_in_the_sums_of_all(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q")
    for _ in range(2):
        with store.channel() as other:
            other.basic_publish("", "q", b"x")
            assert other.basic_get("q") is not None  # its close puts it back
    channel.basic_publish("", "q", b"x")
    stats = store.stats(detail=True)
    assert stats.channels[channel.number]["publish"] == 1
    sums = {name: value for name, value in stats.all_channels.items() if value}
    expected = {"publish": 3, "get": 2, "deliver_get": 2, "redeliver": 1, "requeue": 2}
    assert sums == expected


def test_expired_messages_are_counted_by_their_queue(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q", arguments={"x-message-ttl": 1})
    channel.basic_publish("", "q", b"x")
    wait_until(lambda: store.stats(detail=True).queues["q"]["expired"] == 1)


def test_priorities_of_a_queue_are_counted_together(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q", arguments={"x-max-priority": 3})
    for priority in range(4):
        channel.basic_publish("", "q", b"x", pyqstore.Properties(priority=priority))
    table = pyarrow.table({"body": [b"x"] * 2, "priority": pyarrow.array([1, 3], "uint8")})
    channel.publish_batch(table, routing_key="q")
    while (message := channel.basic_get("q")) is not None:
        message.ack()
    stats = store.stats(detail=True)
    counts = {name: count for name, count in stats.queues["q"].items() if count}
    assert counts == {"publish": 6, "get": 6, "deliver_get": 6, "ack": 6, "get_empty": 1}
    assert stats.routes == {"": {"q": {"publish": 6, "confirm": 0}}}
    channel.basic_publish("", "q", b"x", pyqstore.Properties(priority=2))
    message = channel.basic_get("q")
    assert message is not None
    channel.queue_delete("q")  # one is out still: its queue's counters are gone
    message.ack()
    assert store.stats(detail=True).channels[1]["ack"] == 7


def test_a_stream_counts_what_its_consumers_get(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    for _ in range(2):
        channel.basic_publish("", "s", b"x")
    channel.basic_qos(10)
    tag = channel.basic_consume(
        "s", lambda message: message.ack(), arguments={"x-stream-offset": "first"}
    )
    wait_until(lambda: channel.process_events(0.1) >= 0 and acked(store) == 2)
    channel.basic_cancel(tag)
    counts = store.stats(detail=True).queues["s"]
    assert (counts["publish"], counts["deliver"], counts["ack"]) == (2, 2, 2)


def acked(store: pyqstore.Store) -> int:
    return store.stats(detail=True).queues["s"]["ack"]


def test_counters_have_the_same_by_other_names(path: Path) -> None:
    with pyqstore.open(path) as store, store.connection() as connection:
        with connection.channel() as channel:
            channel.queue_declare("q", durable=True)
            channel.confirm_select()
            channel.basic_publish("", "q", b"x", PERSISTENT)
            channel.basic_publish("", "nowhere", b"x", PERSISTENT)
            assert channel.wait_for_confirms(5)
            assert channel.basic_get("q", auto_ack=False)
        counters = store.counters()
        stats = store.stats(detail=True)
        assert counters["queues"] == stats.queues
        q = counters["queues"]["q"]
        names = ("publish", "confirm", "deliver", "get", "redeliver", "ack")
        assert [q[name] for name in names] == [1, 1, 0, 1, 0, 0]
        assert counters["queue_exchange"] == {("q", ""): {"publish": 1, "confirm": 1}}
        default = counters["exchanges"][""]
        assert (default["publish"], default["unroutable"], default["confirm"]) == (2, 1, 2)
        # The channel has closed, its connection has not.
        (of_connection,) = counters["connections"].values()
        assert (of_connection["publish"], of_connection["get"], counters["channels"]) == (2, 1, {})


@pytest.mark.faces("sync", "aio")
def test_a_refused_row_of_a_batch_is_no_confirm(path: Path) -> None:
    limits = {"x-max-length": 2, "x-overflow": "reject-publish"}
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("small", durable=True, arguments=limits)
        channel.queue_declare("wide", durable=True)
        channel.confirm_select()
        rows = pyarrow.table({"body": [b"x"] * 8, "routing_key": ["small", "wide"] * 4})
        assert channel.publish_batch(rows).refused == 2
        assert not channel.wait_for_confirms(5)
        counters = store.counters()
        confirms = {name: counts["confirm"] for name, counts in counters["queues"].items()}
        assert confirms == {"small": 2, "wide": 4}
        assert counters["exchanges"][""]["confirm"] == 6

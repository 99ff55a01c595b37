"""Whoever publishes is told why it was refused: by which queue that is full, or by what a store
failed.  Of every verb that publishes, which are found by introspection."""

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
from pyqstore import aio, session
from pyqstore.aio import session as aio_session

from ..support import PERSISTENT, declare

Verb = Callable[[pyqstore.Store], object]
AioVerb = Callable[[aio.Store], Awaitable[object]]
ROWS = pa.table({"body": [b"1", b"2"]})
BODIES = [b"1", b"2"]


def confirming(store: pyqstore.Store) -> pyqstore.Channel:
    channel = store.channel()
    channel.confirm_select()
    return channel


def wait_or_refusal(channel: pyqstore.Channel) -> None:
    if not channel.wait_for_confirms(60):
        assert channel.refusal is not None
        raise channel.refusal


def basic_publish(store: pyqstore.Store) -> None:
    channel = confirming(store)
    channel.basic_publish("", "q", b"1", PERSISTENT)
    wait_or_refusal(channel)


def basic_publish_with_listeners(store: pyqstore.Store) -> None:
    channel, heard = confirming(store), []
    channel.add_confirm_listener(None, lambda number, multiple: heard.append(channel.refusal))
    channel.basic_publish("", "q", b"1", PERSISTENT)
    assert not channel.wait_for_confirms(60)
    assert heard[0] is not None
    raise heard[0]


def publish_batch(store: pyqstore.Store) -> None:
    store.channel().publish_batch(ROWS, "", "q").wait(60)


def publish_batch_and_confirms(store: pyqstore.Store) -> None:
    channel = confirming(store)
    channel.publish_batch(ROWS, "", "q")
    wait_or_refusal(channel)


def send(store: pyqstore.Store) -> None:
    with session.connect(store) as connection:
        on = connection.session("auto")
        on.producer(on.queue("q")).send(b"1")


def in_transaction(publish: Callable[[Any], object]) -> Verb:
    def commit(store: pyqstore.Store) -> None:
        with store.channel().transaction() as transaction:
            publish(transaction)

    return commit


SYNC: dict[str, Verb] = {
    "Channel.basic_publish": basic_publish,
    "Channel.basic_publish, listeners": basic_publish_with_listeners,
    "Channel.publish_batch": publish_batch,
    "Channel.publish_batch, confirms": publish_batch_and_confirms,
    "Queue.put": lambda store: store.queue("q").put(b"1"),
    "Queue.put_many": lambda store: store.queue("q").put_many(BODIES),
    "Queue.put_many, Arrow": lambda store: store.queue("q").put_many(ROWS),
    "Stream.publish": lambda store: store.stream("s").publish(b"1"),
    "Stream.publish_batch": lambda store: store.stream("s").publish_batch(ROWS),
    "Transaction.publish": in_transaction(lambda on: on.publish("", "q", b"1", PERSISTENT)),
    "Transaction.publish_batch": in_transaction(lambda on: on.publish_batch(ROWS, "", "q")),
    "Producer.send": send,
}


async def aio_confirming(store: aio.Store) -> aio.Channel:
    channel = await store.channel()
    await channel.confirm_select()
    return channel


async def aio_basic_publish(store: aio.Store) -> None:
    channel = await aio_confirming(store)
    await channel.basic_publish("", "q", b"1", PERSISTENT)


async def aio_basic_publish_with_listeners(store: aio.Store) -> None:
    channel = await aio_confirming(store)
    heard: list[BaseException | None] = []
    channel.add_confirm_listener(None, lambda number, multiple: heard.append(channel.refusal))
    await asyncio.gather(channel.basic_publish("", "q", b"1", PERSISTENT), return_exceptions=True)
    assert heard[0] is not None
    raise heard[0]


async def aio_publish_batch(store: aio.Store) -> None:
    channel = await store.channel()
    receipt = await channel.publish_batch(ROWS, "", "q")
    await receipt.wait(60)


async def aio_publish_batch_and_confirms(store: aio.Store) -> None:
    channel = await aio_confirming(store)
    await channel.publish_batch(ROWS, "", "q")
    if not await channel.wait_for_confirms(60):
        assert channel.refusal is not None
        raise channel.refusal


async def aio_put(store: aio.Store, put: Callable[[aio.Queue], Awaitable[object]]) -> None:
    await put(await store.queue("q"))


async def aio_stream(store: aio.Store, publish: Callable[[aio.Stream], Awaitable[object]]) -> None:
    await publish(await store.stream("s"))


async def aio_send(store: aio.Store) -> None:
    async with aio_session.connect(store) as connection:
        on = await connection.session("auto")
        producer = await on.producer(on.queue("q"))
        await producer.send(b"1")


async def aio_transaction(store: aio.Store, publish: Callable[[Any], Awaitable[object]]) -> None:
    channel = await store.channel()
    async with channel.transaction() as transaction:
        await publish(transaction)


AIO: dict[str, AioVerb] = {
    "Channel.basic_publish": aio_basic_publish,
    "Channel.basic_publish, listeners": aio_basic_publish_with_listeners,
    "Channel.publish_batch": aio_publish_batch,
    "Channel.publish_batch, confirms": aio_publish_batch_and_confirms,
    "Queue.put": lambda store: aio_put(store, lambda queue: queue.put(b"1")),
    "Queue.put_many": lambda store: aio_put(store, lambda queue: queue.put_many(BODIES)),
    "Queue.put_many, Arrow": lambda store: aio_put(store, lambda queue: queue.put_many(ROWS)),
    "Stream.publish": lambda store: aio_stream(store, lambda stream: stream.publish(b"1")),
    "Stream.publish_batch": lambda store: aio_stream(
        store, lambda stream: stream.publish_batch(ROWS)
    ),
    "Transaction.publish": lambda store: aio_transaction(
        store, lambda on: on.publish("", "q", b"1", PERSISTENT)
    ),
    "Transaction.publish_batch": lambda store: aio_transaction(
        store, lambda on: on.publish_batch(ROWS, "", "q")
    ),
    "Producer.send": aio_send,
}


def verbs(*modules: Any) -> set[str]:
    """The methods of public classes that publish.  Coroutines have a ``send``, too."""
    return {
        f"{name}.{verb}"
        for module in modules
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if not hasattr(kind, "throw")
        for verb, method in inspect.getmembers(kind, callable)
        if re.fullmatch(r"(basic_)?(put|publish|send)(_many|_batch)?", verb)
    }


def test_the_tables_have_every_verb_that_publishes() -> None:
    assert verbs(pyqstore, session) == {name.partition(",")[0] for name in SYNC}
    assert verbs(aio, aio_session) == {name.partition(",")[0] for name in AIO}


def refused(store: pyqstore.Store, verb: Verb) -> pyqstore.Error:
    with pytest.raises(pyqstore.Error) as caught:
        verb(store)
    return caught.value


def aio_refused(store: pyqstore.Store, verb: AioVerb) -> pyqstore.Error:
    async def work() -> pyqstore.Error:
        with pytest.raises(pyqstore.Error) as caught:
            await verb(aio.Store(store))
        return caught.value

    return asyncio.run(work())


FACES = [
    *(pytest.param(refused, verb, id=name) for name, verb in SYNC.items()),
    *(pytest.param(aio_refused, verb, id=f"aio {name}") for name, verb in AIO.items()),
]


def declared(store: pyqstore.Store, length: int) -> None:
    """Queue "q", which holds so many messages, and stream "s"."""
    with store.channel() as channel:
        declare(channel, "q", max_length=length, overflow="reject-publish")
    store.stream("s")


@pytest.mark.parametrize(("ask", "verb"), FACES)
def test_a_store_that_failed_was_called_a_full_queue(
    tmp_path: Path, ask: Callable[..., pyqstore.Error], verb: object
) -> None:
    store = pyqstore.open(tmp_path / "store")
    declared(store, 2)
    (tmp_path / "store").rename(tmp_path / "gone")
    error = ask(store, verb)
    assert type(error) is pyqstore.StoreFailed
    assert "the store's directory was moved away while it was open" in str(error)
    assert error.status == "QS_ESTORE_FAILED"
    with pytest.raises(pyqstore.StoreFailed):
        store.close()


@pytest.mark.parametrize(
    ("ask", "verb"),
    [face for face in FACES if "Stream" not in str(face.id)],  # which take everything
)
def test_a_refusal_did_not_name_the_queue_that_is_full(
    tmp_path: Path, ask: Callable[..., pyqstore.Error], verb: object, request: pytest.FixtureRequest
) -> None:
    with pyqstore.open(tmp_path / "store") as store:
        declared(store, 1)
        store.queue("q").put(b"first")
        error = ask(store, verb)
        assert "queue 'q'" in str(error)
        assert " is full" in str(error)
        if "Transaction" in request.node.callspec.id:
            assert type(error) is pyqstore.PreconditionFailed
        else:
            assert isinstance(error, pyqstore.PublishRefused)
            assert error.queue == "q"


def test_the_queue_is_told_of_each_message(channel: pyqstore.Channel) -> None:
    for name in ("a", "b"):
        declare(channel, name, max_length=0, overflow="reject-publish")
    channel.confirm_select()
    heard: list[tuple[int, str]] = []

    def on_nack(number: int, multiple: bool) -> None:
        assert isinstance(channel.refusal, pyqstore.PublishRefused)
        heard.append((channel.refusal.count, channel.refusal.queue))

    channel.add_confirm_listener(None, on_nack)
    keys = ["b", "b", "a", "b"]
    rows = pa.table({"body": [b""] * 4, "routing_key": keys})
    receipt = channel.publish_batch(rows)
    with pytest.raises(pyqstore.PublishRefused) as caught:
        receipt.wait()
    assert (caught.value.queue, caught.value.count) == ("b", 4)
    for key in keys:
        channel.basic_publish("", key, b"")
        assert channel.wait_for_confirms() is False
    assert heard == [*[(n, "b") for n in range(1, 6)], (1, "b"), (1, "a"), (1, "b")]
    channel.queue_declare("open")
    channel.basic_publish("", "open", b"")
    assert channel.wait_for_confirms() is True
    assert channel.refusal is None


def test_a_queue_deleted_since_is_not_named(channel: pyqstore.Channel) -> None:
    declare(channel, "full", max_length=0, overflow="reject-publish")
    channel.confirm_select()
    channel.basic_publish("", "full", b"")
    channel.queue_delete("full")
    assert channel.wait_for_confirms() is False
    assert isinstance(channel.refusal, pyqstore.PublishRefused)
    assert channel.refusal.queue == ""
    assert str(channel.refusal) == "publish 1 was refused by a queue that is full"


def test_a_put_was_refused_for_the_batch_before_it(store: pyqstore.Store) -> None:
    queue = store.queue("q", max_length=1, overflow="reject-publish")
    with pytest.raises(pyqstore.PublishRefused, match=r"1 of .*queue 'q'.*: publish numbers 2$"):
        queue.put_many(ROWS)
    queue.get().ack()
    queue.put(b"3")

"""Every entry point of every face, found by introspection, in a child of fork(): ForkedStore, also
of what has messages in memory already, which are the parent's."""

from __future__ import annotations

import asyncio
import faulthandler
import inspect
import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
from pyqstore import aio, session
from pyqstore.compat import pika
from pyqstore.waiting import Deadline

from ..support import wait_until
from .faces import classes, verbs

HANGS_S = 30.0

OF_NO_STORE = {
    "Codec", "Properties", "ReturnedMessage", "StagedFile", "StagedWriter", "Verification",
    "Adoption", "TraceEvent", "aio.Confirm", "aio.Opening", "aio.session.Connecting",
    "session.Destination", "session.Groups", "session.Options", "session.PushBuffer",
    "session.Queue", "session.RedeliveryPolicy", "session.Topic", "Shovelled",
}  # fmt: skip
"""Classes of values, and those that use no open store.  Flight: ``test_flight_failures``."""

TOLD = {
    "address", "amqp", "assignment", "body", "buffer", "client_id", "committed", "consumer_tag",
    "correlation_id", "count", "delivery_count", "delivery_tag", "destination", "directory",
    "exception_listener", "exchange", "first_publish_number", "group", "instance", "is_over",
    "is_settled",
    "last_publish_number", "listener", "message_id", "mode", "name", "number", "path", "paused",
    "persistent", "prefetch", "priority", "properties", "queue", "recovery_report", "redelivered",
    "refusal", "refused", "reply_to", "returned", "routing_key", "settled", "store", "text",
    "timestamp", "transacted", "type", "unroutable",
}  # fmt: skip
"""Properties of what an object was made with, was told, or holds."""

PURE = {
    "Message.json", "Queue.decode", "aio.Message.json", "aio.Queue.decode",
    "aio.session.Connection.options", "aio.session.Message.json", "aio.session.Session.queue",
    "aio.session.Session.topic", "session.Connection.options", "session.Message.json",
    "session.Session.queue", "session.Session.topic", "Transaction.committed",
    "aio.Transaction.committed", "aio.Receipt.of",
}  # fmt: skip
"""What asks nothing of a store."""

GIVEN: dict[str, Any] = {
    "body": b"x", "callback": print, "consumer_tag": "t", "count": 1,
    "data": pa.table({"body": [b"x"]}), "delivery_tag": 1, "destination": "e", "exchange": "e",
    "files": [], "function": print, "group": "g", "key": "k", "mode": "lazy", "name": "s",
    "offset": 0, "on_ack": None, "on_nack": None, "path": "/nowhere/to/be/found", "queue": "q",
    "routing_key": "q", "source": "e", "stream": "s", "streams": "s", "when": timedelta(1),
}  # fmt: skip
GIVEN_TO = {
    "session.Session.browse": {"queue": session.Queue("q")},
    "session.Session.consumer": {"destination": session.Queue("q")},
    "session.Session.subscribe": {"topic": session.Topic("t")},
    "Store.forget_transaction": {"key": "k"},
}
"""Arguments that a verb must be given, by name: a new one is to be added."""

LAST = ("close", "aclose")


def made(store: pyqstore.Store) -> dict[str, Any]:
    """One object of each class, those that can with messages or rows in memory."""
    queue = store.queue("q")
    queue.put_many([b"x"] * 20)
    store.stream("s").publish(b"row")
    channel = store.channel()
    channel.confirm_select()
    channel.basic_consume("q", consumer_tag="t")
    channel.basic_qos(2)
    other = channel.basic_consume("q")
    assert channel.next_delivery(other) is not None
    receipt = channel.publish_batch(GIVEN["data"], "", "q")
    receipt.wait()
    channel.process_events()
    messages = store.channel().consume("q")
    next(messages)
    consumer = store.stream_consumer("s", "g")
    assert consumer._look(1, Deadline(0)) is not None  # as after a poll that was interrupted
    transacting = store.channel()
    message = transacting.basic_get("q")
    transaction = transacting.transaction()
    transaction.__enter__()
    connection = session.connect(store)
    its = connection.session("client")
    receiver = its.consumer(its.queue("q"), prefetch=5)
    return {
        "Store": store,
        "Connection": store.connection(),
        "Channel": channel,
        "Message": message,
        "Messages": messages,
        "Receipt": receipt,
        "Transaction": transaction,
        "Settler": transacting.threadsafe(),
        "Queue": queue,
        "Stream": store.stream("s"),
        "StreamConsumer": consumer,
        "Listener": store.listen("127.0.0.1:0"),
        "Trace": store.trace(),
        "session.Connection": connection,
        "session.Session": its,
        "session.Message": receiver.receive(),
        "session.Consumer": receiver,
        "session.Producer": its.producer(session.Queue("q")),
    }


def begun(store: pyqstore.Store, objects: dict[str, Any]) -> list[Any]:
    """Iterators that have more in memory."""
    reader = store.stream("s")._reader("first", None, None, None, True)
    assert reader.look() is not None
    browsing = objects["session.Session"].browse(session.Queue("q"))
    next(browsing)
    return [reader, browsing]


async def begun_of_asyncio(objects: dict[str, Any]) -> list[Any]:
    """The same, the last with a call under way for somebody who was cancelled."""
    browsing = objects["aio.session.Session"].browse(session.Queue("q"))
    await anext(browsing)
    reading = objects["aio.Stream"].read(follow=True)
    await anext(reading)
    waiting = asyncio.create_task(anext(reading))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    return [browsing, reading]


async def made_of_asyncio(given: pyqstore.Store) -> dict[str, Any]:
    """The same."""
    given.queue("q").put_many([b"x"] * 200)  # of which all consumers have their share
    store = aio.Store(given)
    channel = await store.channel()
    await channel.confirm_select()
    tag = await channel.basic_consume("q", consumer_tag="t")
    assert await channel.next_delivery(tag) is not None
    messages = (await store.channel()).consume("q")
    await anext(messages)
    receipt = await channel.publish_batch(GIVEN["data"], "", "q")
    await receipt.wait()
    transacting = await store.channel()
    message = await transacting.basic_get("q")
    transaction = transacting.transaction()
    await transaction.__aenter__()
    consumer = await store.stream_consumer("s", "of asyncio")
    assert consumer._twin._look(1, Deadline(0)) is not None
    connection = await aio.session.connect(store)
    its = await connection.session("client")
    receiver = await its.consumer(its.queue("q"), prefetch=5)
    return {
        "aio.Store": store,
        "aio.Connection": await store.connection(),
        "aio.Channel": channel,
        "aio.Message": message,
        "aio.Messages": messages,
        "aio.Receipt": receipt,
        "aio.Transaction": transaction,
        "aio.Queue": await store.queue("q"),
        "aio.Stream": await store.stream("s"),
        "aio.StreamConsumer": consumer,
        "aio.Trace": store.trace(),
        "aio.session.Connection": connection,
        "aio.session.Session": its,
        "aio.session.Message": await receiver.receive(),
        "aio.session.Consumer": receiver,
        "aio.session.Producer": await its.producer(session.Queue("q")),
    }


def arguments_of(name: str, verb: Any, objects: dict[str, Any]) -> dict[str, Any]:
    """What a verb must be given."""
    face = "aio." if name.startswith("aio.") else ""
    always = GIVEN_TO.get(name.removeprefix("aio."), {})
    special = {
        "consumer": objects[f"{face}StreamConsumer"],
        "delivery": objects[f"{face}Message"],
        "message": objects[f"{face}Message"],
        **always,
    }
    needed = [
        *always,
        *(
            each.name
            for each in list(inspect.signature(verb).parameters.values())[1:]
            if each.default is each.empty
            and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        ),
    ]
    return {each: special[each] if each in special else GIVEN[each] for each in needed}


async def driven(what: Any) -> object:
    """What a verb returned, begun: awaited, entered, or asked for its first."""
    if inspect.isawaitable(what):
        what = await what
    for step in ("__anext__", "__aenter__"):
        if hasattr(what, step):
            return await getattr(what, step)()
    for step in ("__next__", "__enter__", "result"):
        if hasattr(what, step):
            return getattr(what, step)()
    return what


async def tried(call: Callable[[], Any]) -> str:
    """What became of it."""
    try:
        async with asyncio.timeout(HANGS_S):
            return f"returned {await driven(call())!r}"
    except pyqstore.ForkedStore:
        return ""
    except BaseException as error:
        return f"raised {type(error).__name__}: {error}"


async def wrong(objects: dict[str, Any], iterators: list[Any]) -> list[str]:
    """What is wrong in the child."""
    found: list[str] = []

    async def expect(name: str, call: Callable[[], Any]) -> None:
        if answer := await tried(call):
            found.append(f"{name} {answer}")

    for each in iterators:
        await expect(type(each).__name__, lambda each=each: each)
    for of, what in objects.items():
        for each, verb in verbs(type(what)):
            name = f"{of}.{each}"
            if name in PURE or each in LAST or (each in TOLD and not callable(verb)):
                continue
            if each == "closed":
                if what.closed is not True:
                    found.append(f"{name} is {what.closed}")
            elif callable(verb):
                given = arguments_of(name, verb, objects)
                method = getattr(what, each)
                await expect(name, lambda method=method, given=given: method(**given))
            else:
                await expect(name, lambda what=what, each=each: getattr(what, each))
        for each in ("__iter__", "__aiter__", "__len__"):
            if hasattr(what, each):
                await expect(f"{of}.{each}", getattr(what, each))
        repr(what)
    for of, what in reversed(objects.items()):
        if hasattr(what, "close"):
            try:
                ended = what.close()
                if inspect.isawaitable(ended):
                    await ended
            except BaseException as error:
                found.append(f"{of}.close raised {type(error).__name__}: {error}")
    return found


def test_every_class_of_every_face_is_tried() -> None:
    here = {of for of, _ in classes() if not of.startswith("flight.")}
    with pyqstore.open(":memory:") as store:
        objects = {*made(store), *asyncio.run(made_of_asyncio(store))}
    assert here - OF_NO_STORE == objects


def test_every_entry_point_in_a_forked_child_raises_forked_store(path: Path) -> None:
    reading, writing = os.pipe()
    with pyqstore.open(path) as store, asyncio.Runner() as runner:
        objects = {**made(store), **runner.run(made_of_asyncio(store))}
        iterators = [*begun(store, objects), *runner.run(begun_of_asyncio(objects))]
        child = os.fork()
        if child == 0:
            faulthandler.dump_traceback_later(2 * HANGS_S, exit=True)
            try:
                found = asyncio.new_event_loop().run_until_complete(wrong(objects, iterators))
            except BaseException as error:
                found = [repr(error)]
            os.write(writing, json.dumps(found).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            told = pipe.read()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert "\n".join(json.loads(told)) == ""

        assert objects["Channel"].next_delivery("t", 0).body == b"x"
        assert objects["session.Consumer"].receive(0).body == b"x"
        assert objects["StreamConsumer"].poll()["body"].to_pylist() == [b"row"]

        async def taken() -> list[bytes]:
            receiver, channel = objects["aio.session.Consumer"], objects["aio.Channel"]
            first, second = await receiver.receive(0), await channel.next_delivery("t", 0)
            return [first.body, second.body]

        assert runner.run(taken()) == [b"x", b"x"]


@pytest.mark.parametrize("mode", ["auto", "client", "dups_ok", "individual", "transacted"])
def test_a_buffered_message_is_received_by_the_parent_alone(
    store: pyqstore.Store, mode: str
) -> None:
    with session.connect(store) as connection, connection.session(mode) as its:
        consumer = its.consumer(its.queue("q"))
        store.queue("q").put_many([b"1", b"2"])
        wait_until(lambda: len(consumer.buffer) == 2)
        first = consumer.receive()
        assert first is not None
        assert len(consumer.buffer) == 1
        child = os.fork()
        if child == 0:
            told = 1
            try:
                consumer.receive(0)
            except pyqstore.ForkedStore:
                told = 0
            finally:
                os._exit(told)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        second = consumer.receive()
        assert second is not None
        assert second.body == b"2"


def test_a_child_may_open_stores_of_its_own(path: Path, tmp_path: Path) -> None:
    uri = f"qstore://{path}"
    with session.connect(uri, client_id="c") as connection:
        child = os.fork()
        if child == 0:
            told = 1
            try:
                assert connection.closed
                with pytest.raises(pyqstore.StoreLocked):  # it is the parent's
                    session.connect(uri, client_id="c")
                with pyqstore.open(tmp_path / "own") as own:
                    own.queue("q").put(b"x")
                told = 0
            finally:
                os._exit(told)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_pikas_consume_has_buffered_is_the_parents(path: Path) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters(str(path)))
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", "q", body)
    iterating = channel.consume("q")
    assert next(iterating)[2] == b"1"
    connection.process_data_events(0)
    child = os.fork()
    if child == 0:
        told = 0
        calls: list[Callable[[], Any]] = [
            lambda: next(iterating),
            lambda: channel.basic_get("q"),
            lambda: channel.basic_publish("", "q", b"4"),
            lambda: connection.process_data_events(0),
            connection.channel,
        ]
        for call in calls:
            try:
                call()
            except pyqstore.ForkedStore as error:
                told += isinstance(error, pika.exceptions.StreamLostError)
        os._exit(len(calls) - told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert next(iterating)[2] == b"2"
    connection.close()

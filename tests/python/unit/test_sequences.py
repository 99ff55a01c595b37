"""Lists of names, and what bodies are taken from: looked at before they are iterated.

To iterate a queue takes its messages, and then waits for ever.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
from pyqstore import aio, flight
from pyqstore.queue import bodies

WANTED: dict[str, Any] = {
    "streams": "log", "group": "g", "key": "k", "run": "r1", "transaction": "t", "shards": 1,
    "path": "nowhere", "clients": [], "staged": [], "files": [], "router": None,
}  # fmt: skip


class Trap:
    """An iterable that nobody iterates."""

    def __init__(self) -> None:
        self.is_iterated = False

    def __iter__(self) -> Iterator[str]:
        self.is_iterated = True
        return iter(())

    def __len__(self) -> int:
        return 0


def lists_of(thing: Any) -> list[tuple[str, str]]:
    """Its public verbs that take sequences, and the parameters which do."""
    names = getattr(thing, "__all__", dir(thing))
    verbs = [name for name in names if not name.startswith("_") and callable(getattr(thing, name))]
    return [
        (name, parameter.name)
        for name in verbs
        if inspect.isroutine(getattr(thing, name))
        for parameter in inspect.signature(getattr(thing, name)).parameters.values()
        if any(word in str(parameter.annotation) for word in ("Sequence[", "Collection["))
    ]


def refused(verb: Callable[..., Any], parameter: str, value: object) -> Any:
    given = {
        each.name: WANTED[each.name]
        for each in inspect.signature(verb).parameters.values()
        if each.default is each.empty and each.name != parameter
    }
    return verb(**given, **{parameter: value})


def things(store: pyqstore.Store) -> list[Any]:
    """What is no sequence of str."""
    queue = store.queue("jobs")
    queue.put(b"kept")
    names: list[Any] = [queue, (name for name in "ab"), 5, {"a": 1}, b"ab", ["a", 1], [b"a"]]
    return [Trap(), *names]


def check(store: pyqstore.Store, thing: Any) -> int:
    count = 0
    for name, parameter in lists_of(thing):
        for value in things(store):
            if parameter == "clients" and isinstance(value, list):
                continue  # whatever has the methods of a client
            with pytest.raises(TypeError, match=parameter):
                refused(getattr(thing, name), parameter, value)
            assert not getattr(value, "is_iterated", False), (name, parameter)
            count += 1
    assert {m.body for m in store.queue("jobs").peek(1000)} == {b"kept"}
    return count


def test_what_is_no_list_of_names_is_refused_before_it_is_iterated(
    store: pyqstore.Store, tmp_path: Path
) -> None:
    assert check(store, store) > 0
    assert check(store, store.stream("log")) > 0
    assert check(store, pyqstore) > 0
    assert check(store, flight) > 0
    with flight.serve(store) as server, pyqstore.connect(server.address) as client:
        assert check(store, client) > 0
        assert check(store, client.stream("log")) > 0


async def first(call: Callable[[], Any]) -> Any:
    """What is awaited, or what comes first."""
    made = call()
    return await (made if inspect.isawaitable(made) else anext(made))


async def test_the_same_in_a_loop(aio_store: aio.Store) -> None:
    for thing in (aio_store, await aio_store.stream("log")):
        for name, parameter in lists_of(thing):
            for value in things(aio_store._store):
                with pytest.raises(TypeError, match=parameter):
                    await first(partial(refused, getattr(thing, name), parameter, value))
                assert not getattr(value, "is_iterated", False), (name, parameter)
    queue = await aio_store.queue("work")
    for data in (queue, Trap, 5):
        with pytest.raises(TypeError, match="put_many"):
            await queue.put_many(data)


def ours() -> list[type]:
    """Classes of the package whose instances can be iterated."""
    found: dict[type, None] = {}
    for module in pkgutil.walk_packages(pyqstore.__path__, "pyqstore."):
        if module.name.startswith(("pyqstore.bench", "pyqstore.__main__", "pyqstore.compat")):
            continue
        for made in vars(importlib.import_module(module.name)).values():
            is_ours = inspect.isclass(made) and made.__module__.startswith("pyqstore.")
            if is_ours and hasattr(made, "__iter__") and not inspect.isabstract(made):
                found[made] = None
    return list(found)


def test_no_queue_is_a_list_of_bodies() -> None:
    names = set()
    for made in ours():
        try:
            thing = made.__new__(made)
        except TypeError:  # a tuple with fields, or an extension's
            continue
        names.add(made.__name__)
        with pytest.raises(TypeError, match="put_many takes an iterable of bodies"):
            bodies(thing)
    assert {"Queue", "Reader"} <= names


def test_a_queue_put_into_itself_keeps_its_messages(store: pyqstore.Store) -> None:
    queue = store.queue("jobs")
    queue.put(b"kept")
    with pytest.raises(TypeError, match="not Queue"):
        queue.put_many(queue)
    assert [message.body for message in queue.peek(2)] == [b"kept"]
    assert queue.put_many(message for message in (b"a", "b")) == 2


def test_streams_that_are_bound_later_belong_to_the_exchange(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    """As the first, behind another exchange, and beside a queue."""
    channel.exchange_declare("all", "fanout", durable=True)
    channel.exchange_declare("more", "fanout", durable=True)
    channel.queue_declare("queue", durable=True)
    heard: list[list[str]] = []
    with store.stream_consumer("all", "g", on_assign=heard.append) as consumer:
        nothing = consumer.poll(timeout=0)
        assert len(nothing) == 0
        assert (consumer.assignment, consumer.lag(), heard) == ([], {}, [])
        store.stream("log").publish(b"first")
        channel.queue_bind("log", "all", "")
        channel.queue_bind("queue", "all", "")
        assert consumer.lag() == {"log": 1}
        rows = consumer.poll(timeout=0)
        assert (rows["body"].to_pylist(), rows["stream"].to_pylist()) == ([b"first"], ["log"])
        assert rows.schema == nothing.schema
        store.stream("other").publish(b"second")
        channel.queue_bind("other", "more", "")
        channel.exchange_bind("more", "all", "")
        assert consumer.poll(timeout=0)["body"].to_pylist() == [b"second"]
        assert heard == [["log"], ["other"]]
        consumer.commit()
        store.stream("log").delete()
        with pytest.raises(pyqstore.NotFound):
            consumer.poll(timeout=0)
        store.stream("log").publish(b"third")
        assert len(consumer.poll(timeout=0)) == 0
        channel.queue_bind("log", "all", "")
        assert consumer.poll(timeout=0)["body"].to_pylist() == [b"third"]


def test_consumers_of_a_group_divide_what_is_bound_later(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.exchange_declare("all", "fanout", durable=True)
    with (
        store.stream_consumer("all", "g") as one,
        store.stream_consumer(["all"], "g", columns=["body"]) as two,
    ):
        for name in "abcd":
            store.stream(name).publish(name.encode())
            channel.queue_bind(name, "all", "")
        taken: list[bytes] = []
        while len(taken) < 4:
            for consumer in (one, two):
                taken += consumer.poll(timeout=0)["body"].to_pylist()
        assert sorted(taken) == [b"a", b"b", b"c", b"d"]
        assert len(one.assignment) == len(two.assignment) == 2
        assert two.poll(timeout=0).schema.names == ["body", "stream"]


@pytest.mark.parametrize(
    ("name", "value"), [("start", "bogus"), ("columns", ["nope"]), ("routing_keys", [])]
)
def test_options_are_checked_though_no_stream_is_bound(
    store: pyqstore.Store, name: str, value: Any
) -> None:
    with store.channel() as channel:
        channel.exchange_declare("all", "fanout", durable=True)
    with pytest.raises(ValueError, match=r"bogus|nope|routing_keys"):
        store.stream_consumer("all", "g", **{name: value})


def test_the_schema_without_a_stream_is_that_of_streams(store: pyqstore.Store) -> None:
    from pyqstore.columns import STREAM, schema_of

    stream = store.stream("log")
    stream.publish_batch(pa.table({"body": [b"x"]}))
    assert schema_of(STREAM) == stream.read().schema


@pytest.fixture
def fanout(channel: pyqstore.Channel) -> str:
    channel.exchange_declare("all", "fanout", durable=True)
    return "all"


def test_a_stream_that_is_declared_and_bound_again_before_a_poll_is_read(
    store: pyqstore.Store, channel: pyqstore.Channel, fanout: str
) -> None:
    stream = store.stream("a")
    channel.queue_bind("a", fanout, "")
    with store.stream_consumer(fanout, "g") as consumer:
        stream.publish(b"before")
        assert len(consumer.poll()) == 1
        stream.delete()
        store.stream("a").publish(b"again")
        channel.queue_bind("a", fanout, "")
        with pytest.raises(pyqstore.NotFound, match="'a'"):
            consumer.poll()
        assert consumer.poll()["body"].to_pylist() == [b"again"]


def test_a_stream_that_is_bound_later_begins_with_the_consumer(
    store: pyqstore.Store, channel: pyqstore.Channel, fanout: str
) -> None:
    """A start at the next message means the next one after the consumer was made."""
    with store.stream_consumer(fanout, "g", start="next") as consumer:
        store.stream("a")
        channel.queue_bind("a", fanout, "")
        store.stream("a").publish(b"news")
        assert consumer.poll()["body"].to_pylist() == [b"news"]


def test_a_consumer_of_an_exchange_that_is_deleted_is_told(
    store: pyqstore.Store, channel: pyqstore.Channel, fanout: str
) -> None:
    with store.stream_consumer(fanout, "g") as consumer:
        assert len(consumer.poll()) == 0
        channel.exchange_delete(fanout)
        for _ in range(2):
            with pytest.raises(pyqstore.NotFound, match="'all' was deleted"):
                consumer.poll(timeout=None)

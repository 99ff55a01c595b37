"""What is wrong with an argument is told in one short line that names it and its type; time spans
may be timedeltas; a flag is no word."""

import inspect
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyqstore
from pyqstore import aio, session
from pyqstore.aio import session as aio_session

CLASSES = (
    pyqstore.Channel, pyqstore.Queue, pyqstore.StreamConsumer, pyqstore.Receipt, pyqstore.Listener,
    session.Session, session.Consumer, aio.Channel, aio.Queue, aio.StreamConsumer, aio.Receipt,
    aio_session.Session, aio_session.Consumer,
)  # fmt: skip
NOTHING = timedelta(milliseconds=1)


@pytest.fixture
def producer(path: Path) -> Iterator[session.Producer]:
    with (
        session.connect(f"qstore://{path}") as connection,
        connection.session() as made,
        made.producer(made.queue("q")) as producer,
    ):
        yield producer


def test_every_timeout_may_be_a_timedelta() -> None:
    verbs = [getattr(made, name) for made in CLASSES for name in dir(made) if name[0] != "_"]
    timeouts = [
        (verb, parameter)
        for verb in [*verbs, pyqstore.connect, pyqstore.adopt_into]
        if inspect.isfunction(verb)
        for parameter in inspect.signature(verb).parameters.values()
        if parameter.name.endswith("timeout")
    ]
    assert len(timeouts) >= 20
    for verb, parameter in timeouts:
        assert "Seconds" in str(parameter.annotation), (verb, parameter)


@pytest.mark.faces("sync", "aio")
def test_a_wait_of_a_timedelta_ends(store: pyqstore.Store) -> None:
    queue, stream = store.queue("q"), store.stream("log")
    with pytest.raises(pyqstore.Empty, match=r"within 0\.001 s"):
        queue.get(NOTHING)
    with store.channel() as channel:
        assert channel.get_batch("q", timeout=NOTHING).num_rows == 0
        assert channel.process_events(NOTHING) == 0
        assert list(channel.consume("q", inactivity_timeout=NOTHING)) == []
        tag = channel.basic_consume("q")
        assert channel.next_delivery(tag, NOTHING) is None
        channel.confirm_select()
        assert channel.wait_for_confirms(NOTHING)
    with store.stream_consumer(stream.name, "g") as consumer:
        assert consumer.poll(timeout=NOTHING).num_rows == 0
    with pytest.raises(ValueError, match="timeout"):
        queue.get(-NOTHING)
    with pytest.raises(TypeError, match="timeout must be None, seconds or a timedelta, not str"):
        queue.get("1")  # type: ignore[arg-type]


def test_a_session_waits_for_a_timedelta(path: Path) -> None:
    with session.connect(f"qstore://{path}") as connection, connection.session() as made:
        queue = made.queue("q")
        with made.consumer(queue, optimize_timeout=timedelta(seconds=1)) as consumer:
            assert consumer.receive(NOTHING) is None


def told(kind: type[Exception], call: Callable[[], object]) -> str:
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 200, text
    return text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"body": None}, "body must be bytes, str or another buffer, not NoneType"),
        ({"body": 5}, "body must be .* not int"),
        ({"persistent": "no"}, "persistent must be bool, not str"),
        ({"persistent": None}, "persistent must be bool, not NoneType"),
        ({"persistent": 2}, "persistent must be bool, not 2"),
        ({"priority": None}, "priority must be int, not NoneType"),
        ({"priority": "4"}, "priority must be int, not str"),
        ({"properties": [("a", 1)]}, "properties must be a mapping, not list"),
        ({"properties": {"a": np.array([1, 2])}}, r"headers\['a'\]: ndarray is not a field value"),
        ({"properties": {"a": np.float32(1)}}, r"headers\['a'\]: float32 is not a field value"),
    ],
)
def test_what_is_sent_wrongly_is_named(
    producer: session.Producer, given: dict[str, Any], words: str
) -> None:
    wrong = {"body": b"", **given}
    assert re.search(words, told(TypeError, partial(producer.send, **wrong)))
    assert producer.send(b"goes on", persistent=False, priority=0)


@pytest.mark.parametrize("publish", ["put", "publish", "properties"])
def test_headers_that_no_message_has_are_named(store: pyqstore.Store, publish: str) -> None:
    verbs: dict[str, Callable[..., object]] = {
        "put": partial(store.queue("q").put, b""),
        "publish": partial(store.stream("log").publish, b""),
        "properties": pyqstore.Properties,
    }
    verb = verbs[publish]
    deep: Any = "x"
    for _ in range(5000):
        deep = {"a long name of a header, which is told once or twice": deep}
    text = told(ValueError, partial(verb, headers={"deep": deep}))
    assert re.match(r"headers\['deep'\]\['a long.*\.\.\..*: nested more than 128 deep", text)
    for value in (np.zeros((9, 9)), np.datetime64("2026-01-01"), object(), {"x" * 300: 1}):
        kind = ValueError if isinstance(value, dict) else TypeError
        assert told(kind, partial(verb, headers={"h": value})).startswith("headers['h']")
    verb(headers={"n": np.int64(5), "f": np.float64(1.5), "s": np.str_("a")})


FLAGS = {"passive", "durable", "exclusive", "auto_delete", "internal", "nowait", "auto_ack"}


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("queue_declare", ("x",)),
        ("exchange_declare", ("x", "direct")),
        ("queue_bind", ("q", "amq.direct")),
        ("queue_unbind", ("q", "amq.direct")),
        ("exchange_bind", ("amq.direct", "amq.fanout")),
        ("exchange_unbind", ("amq.direct", "amq.fanout")),
        ("basic_consume", ("q",)),
    ],
)
def test_a_flag_is_no_word(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str, verb: str, arguments: Any
) -> None:
    """The word "no" is true, and a queue that is durable by mistake stays."""
    call = getattr(channel, verb)
    names = FLAGS & inspect.signature(call).parameters.keys()
    assert names
    for name in names:
        for value in ("no", None, 2):
            text = told(TypeError, partial(call, *arguments, **{name: value}))
            assert text.startswith(f"{name} must be bool, not ")
    assert store.queues() == [queue]


def test_the_version_is_the_packages() -> None:
    from importlib.metadata import version

    assert pyqstore.__version__ == version("pyqstore")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        pyqstore.nonsense  # noqa: B018

"""A store has arguments that make no sense to this version, as one that did not know them wrote it:
they are ignored, and that is told.  Of each argument, with values that a declaration refuses."""

import logging
import warnings
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore import _core
from pyqstore.listings import queues_of

from ...format.forging import forge, stand_in
from ..support import PERSISTENT, get, wait_until

NAMES = _core.queue_argument_names()
VALUES: list[Any] = [-1, 0, 2**62, "", "wrong", "x" * 256, True, [1]]
BASES: dict[str, dict[str, Any]] = {
    "classic": {},
    "stream": {"x-queue-type": "stream"},
    "work": {"x-stream-source": "source"},
}


def is_refused(scratch: pyqstore.Store, arguments: dict[str, Any]) -> bool:
    with scratch.connection() as connection:
        channel = connection.channel()
        try:
            channel.queue_declare("tried", durable=True, arguments=arguments)
        except (pyqstore.PreconditionFailed, ValueError):  # ValueError: no name is like that
            return True
        channel.queue_delete("tried")
        return False


def refused() -> dict[str, tuple[str, str, Any]]:
    """Queue: its kind, an argument and a value that a declaration of such a queue refuses."""
    found = {}
    with pyqstore.open(":memory:") as scratch:
        scratch.stream("source")
        for kind, base in BASES.items():
            for name in NAMES:
                makes_another_kind = name in {**base, "x-queue-type": 0} and kind != "classic"
                for number, value in enumerate(VALUES):
                    if not makes_another_kind and is_refused(scratch, {**base, name: value}):
                        found[f"{kind} {name} {number}"] = kind, name, value
    return found


def write(path: Path, queues: dict[str, tuple[str, str, Any]], checkpoint: bool) -> None:
    with pyqstore.open(path) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore", pyqstore.UnknownArgument)
        store.stream("source")
        channel = store.channel()
        for queue, (kind, name, value) in queues.items():
            arguments = {**BASES[kind], stand_in(name): value}
            channel.queue_declare(queue, durable=True, arguments=arguments, nowait=True)
            if kind != "work":
                channel.basic_publish("", queue, b"before", PERSISTENT)
        store.sync()
        if checkpoint:
            store.checkpoint()
    forge(path, NAMES)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_stored_argument_that_makes_no_sense_kept_the_store_from_opening(
    path: Path, checkpoint: bool, caplog: pytest.LogCaptureFixture
) -> None:
    queues = refused()
    assert {name for _, name, _ in queues.values()} == set(NAMES)
    write(path, queues, checkpoint)
    assert pyqstore.verify(path).damages == 0
    with caplog.at_level(logging.WARNING, "pyqstore"), pyqstore.open(path, create=False) as store:
        assert store.recovery_report.ignored_arguments == len(queues)
        assert store.stats()["ignored_arguments"] == len(queues)
        wait_until(lambda: "arguments of queues and bindings that make no sense" in caplog.text)
        assert f"{len(queues)} in all; the first: invalid arg 'x-" in caplog.text
        channel = store.channel()
        channel.confirm_select()
        store.stream("source").publish(b"for all")
        for kind, queue in ((kind, queue) for queue, (kind, _, _) in queues.items()):
            if kind == "classic":
                channel.basic_publish("", queue, b"behind", PERSISTENT)
                assert [get(channel, queue, True).body for _ in range(2)] == [b"before", b"behind"]
            elif kind == "stream":
                stream = store.stream(queue)
                assert stream.next - stream.first == 1
            else:
                assert get(channel, queue, True).body == b"for all"
        assert channel.wait_for_confirms(60)
        stored = {row.name: row.arguments for row in queues_of(store)}
        for queue, (_, name, _) in queues.items():
            assert name.encode() in stored[queue]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_stored_binding_that_makes_no_sense_kept_the_store_from_opening(
    path: Path, checkpoint: bool, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"x-match": ("amq.headers", ["wrong", 7])}
    selectors = {"x-jms-selector": ("jms", ["= = =", 7])}
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.exchange_declare("jms", "x-jms-topic", durable=True)
        for name, (exchange, values) in (headers | selectors).items():
            for number, value in enumerate(values):
                queue = f"q {exchange} {number}"
                channel.queue_declare(queue, durable=True)
                arguments = {stand_in(name): value, "kind": "a"}
                if exchange == "jms":
                    del arguments["kind"]
                channel.queue_bind(queue, exchange, "key", arguments)
        store.sync()
        if checkpoint:
            store.checkpoint()
    forge(path, ["x-match", "x-jms-selector"])
    assert pyqstore.verify(path).damages == 0
    for _ in range(2):  # what was written since says the same
        with caplog.at_level(logging.WARNING, "pyqstore"), pyqstore.open(path) as store:
            assert store.recovery_report.ignored_arguments == 4
            wait_until(lambda: "bindings that make no sense" in caplog.text)
            with store.channel() as channel:
                # As without the argument: all headers of it must match, and all is selected.
                properties = pyqstore.Properties(headers={"kind": "a"}, delivery_mode=2)
                channel.basic_publish("amq.headers", "key", b"1", properties)
                channel.basic_publish("jms", "key", b"2", PERSISTENT)
                for exchange, body in (("amq.headers", b"1"), ("jms", b"2")):
                    bodies = [get(channel, f"q {exchange} {n}", True).body for n in range(2)]
                    assert bodies == [body] * 2
            store.checkpoint()

"""The same scripts through pika, connected to a listener, and through pyqstore.compat.pika, on a
store of this process and of another, with the same outcome."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pyqstore
import pyqstore.compat.pika as compat

real = pytest.importorskip("pika")

Script = Callable[[ModuleType, Any], object]


def outcome_of(call: Callable[[], object]) -> object:
    """What it returns, or the exception's name and AMQP's code."""
    try:
        return call()
    except Exception as error:
        return type(error).__name__, getattr(error, "reply_code", None)


def told(got: Any) -> object:
    """A message as both tell it."""
    method, properties, body = got
    if method is None:
        return None
    return (
        *(method.delivery_tag, method.redelivered, method.exchange, method.routing_key, body),
        getattr(method, "message_count", None),
        sorted((name, value) for name, value in vars(properties).items() if value is not None),
    )


def gets_and_settles(pika: ModuleType, connection: Any) -> object:
    channel = connection.channel()
    declared = channel.queue_declare("q", durable=True).method
    headers = {"text": "t", "number": 7, "list": [1, "a"], "yes": True}
    properties = pika.BasicProperties(
        content_type="text/plain",
        headers=headers,
        delivery_mode=pika.DeliveryMode.Persistent,
        priority=3,
        correlation_id="c",
        expiration="60000",
        timestamp=1_700_000_000,
    )
    for body in (b"1", "2", b"3"):
        channel.basic_publish("", "q", body, properties)
    first, second, third = (told(channel.basic_get("q")) for _ in range(3))
    channel.basic_nack(1)
    channel.basic_reject(2, requeue=False)
    channel.basic_ack(3)
    again = told(channel.basic_get("q", auto_ack=True))
    nothing = told(channel.basic_get("q"))
    return declared.queue, declared.message_count, first, second, third, again, nothing


def consumes_with_prefetch(pika: ModuleType, connection: Any) -> object:
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_qos(prefetch_count=2)
    for number in range(5):
        channel.basic_publish("", "q", str(number))
    seen = []

    def called(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        seen.append((told((method, properties, body)), method.consumer_tag))
        channel.basic_ack(delivery_tag=method.delivery_tag)
        if len(seen) == 5:
            channel.stop_consuming()

    tag = channel.basic_consume("q", called, consumer_tag="mine")
    twice = outcome_of(lambda: channel.basic_consume("q", called, consumer_tag="mine"))
    channel.start_consuming()
    return tag, twice, seen, channel.consumer_tags


def iterates(pika: ModuleType, connection: Any) -> object:
    channel = connection.channel()
    channel.queue_declare("q")
    for number in range(4):
        channel.basic_publish("", "q", str(number))
    seen = []
    for method, properties, body in channel.consume("q", inactivity_timeout=60):
        seen.append(told((method, properties, body)))
        if body == b"3":
            break
        channel.basic_ack(method.delivery_tag)
    seen.append(told(next(channel.consume("q", inactivity_timeout=0.1))))
    other = outcome_of(lambda: next(channel.consume("other")))
    back = channel.cancel(), channel.basic_cancel("unknown")
    channel.close()
    after = connection.channel().queue_declare("q", passive=True).method.message_count
    return seen, other, back, after


def fails_by_code(pika: ModuleType, connection: Any) -> object:
    def passive() -> object:
        return connection.channel().queue_declare("none", passive=True)

    def differs() -> object:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        return channel.queue_declare("q", durable=False)

    def gets() -> object:
        return connection.channel().basic_get("none")

    def consumes() -> object:
        return connection.channel().basic_consume("none", print)

    def binds() -> object:
        return connection.channel().queue_bind("q", "none", "key")

    def reserved() -> object:
        return connection.channel().exchange_declare("amq.mine")

    def deletes() -> object:
        return connection.channel().queue_delete("none").method.message_count

    def closed() -> object:
        channel = connection.channel()
        channel.close()
        return channel.queue_declare("q")

    def closes_twice() -> object:
        channel = connection.channel()
        channel.close()
        return channel.close()

    def acks_what_is_not() -> object:
        channel = connection.channel()
        channel.basic_ack(7)
        return channel.queue_declare("q", passive=True)

    def wrong_type() -> object:
        return connection.channel().exchange_declare("x", exchange_type="nonsense")

    calls = (
        *(passive, differs, gets, consumes, binds, reserved, deletes, closed, closes_twice),
        *(acks_what_is_not, wrong_type),
    )
    outcomes = [outcome_of(call) for call in calls]
    return outcomes, connection.is_open, outcome_of(connection.channel)


def confirms_and_returns(pika: ModuleType, connection: Any) -> object:
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("small", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.basic_publish("", "small", b"fits")
    refused = outcome_of(lambda: channel.basic_publish("", "small", b"too many"))
    returned: object = None
    try:
        channel.basic_publish("", "nowhere", b"x", pika.BasicProperties(app_id="a"), mandatory=True)
    except pika.exceptions.UnroutableError as error:
        (message,) = error.messages
        returned = (
            *(message.method.reply_code, message.method.reply_text, message.method.routing_key),
            *(message.properties.app_id, message.body),
        )
    return refused, returned


def hears_of_returns(pika: ModuleType, connection: Any) -> object:
    channel = connection.channel()
    seen: list[object] = []
    channel.add_on_return_callback(
        lambda channel, method, properties, body: seen.append(
            (channel.channel_number, method.reply_code, method.routing_key, body)
        )
    )
    channel.basic_publish("", "nowhere", b"back", mandatory=True)
    deadline = time.monotonic() + 60
    while not seen and time.monotonic() < deadline:
        connection.process_data_events(0.1)
    return seen


def hears_of_a_deleted_queue(pika: ModuleType, connection: Any) -> object:
    channel, other = connection.channel(), connection.channel()
    channel.queue_declare("q")
    seen: list[object] = []
    channel.add_on_cancel_callback(lambda frame: seen.append(frame.method.consumer_tag))
    channel.basic_consume("q", print, consumer_tag="gone")
    other.queue_delete("q")
    channel.start_consuming()
    return seen, channel.consumer_tags


def routes(pika: ModuleType, connection: Any) -> object:
    channel = connection.channel()
    kinds = ("direct", "fanout", "topic", "headers")
    for kind in kinds:
        channel.exchange_declare(exchange=kind, exchange_type=kind, auto_delete=False)
    queue = channel.queue_declare(queue="", exclusive=True).method.queue
    channel.queue_bind(queue, "direct")
    channel.queue_bind(queue, "fanout", "")
    channel.queue_bind(queue, "topic", "*.error")
    channel.queue_bind(queue, "headers", "", {"x-match": "all", "a": 1})
    channel.exchange_bind("direct", "topic", "#")
    channel.basic_publish("direct", queue, b"direct")
    channel.basic_publish("fanout", "any", b"fanout")
    channel.basic_publish("topic", "web.error", b"topic")
    channel.basic_publish("headers", "", b"headers", pika.BasicProperties(headers={"a": 1}))
    bodies = [channel.basic_get(queue, auto_ack=True)[2] for _ in range(5)]
    channel.queue_unbind(queue, "topic", "*.error")
    channel.exchange_unbind("direct", "topic", "#")
    channel.basic_publish("topic", "web.error", b"lost")
    purged = channel.queue_purge(queue).method.message_count
    deleted = [type(channel.exchange_delete(kind).method).__name__ for kind in kinds]
    return bodies, purged, deleted


def answers_directly(pika: ModuleType, connection: Any) -> object:
    client, server = connection.channel(), connection.channel()
    server.queue_declare("rpc")
    answers: list[bytes] = []

    def serve(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        channel.basic_publish("", properties.reply_to, body * 2)
        channel.basic_ack(method.delivery_tag)

    server.basic_consume("rpc", serve)
    pseudo = "amq.rabbitmq.reply-to"
    client.basic_consume(
        pseudo, lambda channel, method, properties, body: answers.append(body), auto_ack=True
    )
    client.basic_publish("", "rpc", b"12", pika.BasicProperties(reply_to=pseudo))
    deadline = time.monotonic() + 60
    while not answers and time.monotonic() < deadline:
        connection.process_data_events(0.1)
    must_not_ack = outcome_of(lambda: connection.channel().basic_consume(pseudo, print))
    return answers, must_not_ack


def transacts(pika: ModuleType, connection: Any) -> object:
    channel = connection.channel()
    channel.queue_declare("q")
    channel.tx_select()
    channel.basic_publish("", "q", b"dropped")
    channel.tx_rollback()
    channel.basic_publish("", "q", b"kept")
    channel.tx_commit()
    return told(channel.basic_get("q", auto_ack=True)), told(channel.basic_get("q"))


def keeps_what_is_exclusive(pika: ModuleType, connection: Any) -> object:
    channel = connection.channel()
    name = channel.queue_declare("mine", exclusive=True).method.queue
    channel.basic_publish("", "", b"to the last declared")
    channel.basic_publish("", name, b"1")
    return told(channel.basic_get("", auto_ack=True)), told(connection.channel().basic_get(name))


def runs_timers_and_calls_of_threads(pika: ModuleType, connection: Any) -> object:
    channel = connection.channel()
    channel.queue_declare("q")
    main = threading.get_ident()
    seen: list[tuple[str, bool]] = []

    def note(name: str) -> None:
        seen.append((name, threading.get_ident() == main))

    forgotten = connection.call_later(0.1, partial(note, "forgotten"))
    connection.remove_timeout(forgotten)
    connection.call_later(0.2, partial(note, "timer"))
    thread = threading.Thread(
        target=lambda: connection.add_callback_threadsafe(partial(note, "thread"))
    )
    thread.start()
    thread.join()
    connection.sleep(0.01)
    deadline = time.monotonic() + 60
    while len(seen) < 2 and time.monotonic() < deadline:
        connection.process_data_events(0.1)
    seen.sort()  # both may be due when the machine is busy
    in_callback: list[object] = []
    channel.basic_consume(
        "q",
        lambda channel, method, properties, body: (
            in_callback.append(outcome_of(channel.start_consuming)),
            channel.stop_consuming(),
        ),
    )
    channel.basic_publish("", "q", b"")
    channel.start_consuming()
    return seen, in_callback


def closes(pika: ModuleType, connection: Any) -> object:
    channel = connection.channel(5)
    number = channel.channel_number, int(channel), channel.connection is connection
    with channel:
        pass
    with connection:
        connection.channel()
    states = connection.is_closed, channel.is_closed
    return (
        *(number, states, outcome_of(connection.close), outcome_of(connection.channel)),
        outcome_of(lambda: connection.add_callback_threadsafe(print)),
    )


SCRIPTS = (
    *(gets_and_settles, consumes_with_prefetch, iterates, fails_by_code, confirms_and_returns),
    *(hears_of_returns, hears_of_a_deleted_queue, routes, answers_directly, transacts),
    *(keeps_what_is_exclusive, runs_timers_and_calls_of_threads, closes),
)


def played_by_pika(script: Script, path: Path) -> object:
    with pyqstore.open(path) as store:
        port = int(store.listen("127.0.0.1:0").address.rpartition(":")[2])
        connection = real.BlockingConnection(real.ConnectionParameters("127.0.0.1", port))
        try:
            return script(real, connection)
        finally:
            if connection.is_open:
                connection.close()


def played_by_compat(script: Script, path: Path) -> object:
    connection = compat.BlockingConnection(compat.ConnectionParameters(str(path)))
    try:
        return script(compat, connection)
    finally:
        if connection.is_open:
            connection.close()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_script_has_the_same_outcome_as_with_pika(script: Script, tmp_path: Path) -> None:
    assert played_by_compat(script, tmp_path / "compat") == played_by_pika(script, tmp_path / "a")


OWNER = """
import sys
from pyqstore.compat import attach
held = []
for path in sys.stdin:
    held.append(attach(path.strip()))
    print("owned", flush=True)
"""


@pytest.fixture(scope="module")
def owner() -> Iterator[Callable[[Path], None]]:
    """Has another process open a store."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def own(path: Path) -> None:
            print(path, file=process.stdin, flush=True)
            assert process.stdout is not None
            assert process.stdout.readline() == "owned\n"

        yield own
        process.stdin.close()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_script_has_the_same_outcome_when_another_process_owns_the_store(
    script: Script, tmp_path: Path, owner: Callable[[Path], None]
) -> None:
    owner(tmp_path / "compat")
    assert played_by_compat(script, tmp_path / "compat") == played_by_pika(script, tmp_path / "a")

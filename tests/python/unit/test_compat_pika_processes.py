"""Programs as RabbitMQ's tutorials have them, each a process of its own, on one store that the
environment names; and what becomes of the store when the owner is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pyqstore
import pyqstore.compat.pika as pika

pytest.importorskip("pika")

SECONDS = 120

SEND = """
import sys
import pyqstore.compat.pika as pika
connection = pika.BlockingConnection(pika.ConnectionParameters("localhost"))
channel = connection.channel()
channel.queue_declare(queue="tasks", durable=True)
for body in sys.argv[1:]:
    channel.basic_publish(exchange="", routing_key="tasks", body=body,
        properties=pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent))
connection.close()
"""
WORK = """
import sys
import pyqstore.compat.pika as pika
connection = pika.BlockingConnection(pika.ConnectionParameters(host="localhost"))
channel = connection.channel()
channel.queue_declare(queue="tasks", durable=True)

def callback(ch, method, properties, body):
    print(body.decode(), method.redelivered, flush=True)
    if "keep" not in sys.argv:
        ch.basic_ack(delivery_tag=method.delivery_tag)

channel.basic_qos(prefetch_count=1)
channel.basic_consume(queue="tasks", on_message_callback=callback)
print("waiting", flush=True)
channel.start_consuming()
"""
SEND_HELLO = """
import pyqstore.compat.pika as pika
connection = pika.BlockingConnection(pika.ConnectionParameters(host="localhost"))
channel = connection.channel()
channel.queue_declare(queue="hello")
channel.basic_publish(exchange="", routing_key="hello", body="Hello!")
connection.close()
"""
RECEIVE_HELLO = """
import pyqstore.compat.pika as pika
connection = pika.BlockingConnection(pika.ConnectionParameters(host="localhost"))
channel = connection.channel()
channel.queue_declare(queue="hello")

def callback(ch, method, properties, body):
    print(body.decode(), flush=True)

channel.basic_consume(queue="hello", on_message_callback=callback, auto_ack=True)
print("waiting", flush=True)
channel.start_consuming()
"""
RECEIVE_LOGS = """
import sys
import pyqstore.compat.pika as pika
kind, *keys = sys.argv[1:]
connection = pika.BlockingConnection(pika.ConnectionParameters(host="localhost"))
channel = connection.channel()
channel.exchange_declare(exchange="logs", exchange_type=kind)
queue = channel.queue_declare(queue="", exclusive=True).method.queue
for key in keys:
    channel.queue_bind(exchange="logs", queue=queue, routing_key=key)
print("waiting", flush=True)
channel.basic_consume(queue=queue, auto_ack=True, on_message_callback=lambda ch, method, _, body:
    print(method.routing_key, body.decode(), flush=True))
channel.start_consuming()
"""
EMIT_LOGS = """
import sys
import pyqstore.compat.pika as pika
kind, *keys = sys.argv[1:]
connection = pika.BlockingConnection(pika.ConnectionParameters(host="localhost"))
channel = connection.channel()
channel.exchange_declare(exchange="logs", exchange_type=kind)
for key in keys:
    channel.basic_publish(exchange="logs", routing_key=key, body="about " + key)
connection.close()
"""
RPC_SERVER = """
import pyqstore.compat.pika as pika
connection = pika.BlockingConnection(pika.ConnectionParameters(host="localhost"))
channel = connection.channel()
channel.queue_declare(queue="rpc_queue")

def on_request(ch, method, props, body):
    ch.basic_publish(exchange="", routing_key=props.reply_to, body=str(int(body) ** 2),
        properties=pika.BasicProperties(correlation_id=props.correlation_id))
    ch.basic_ack(delivery_tag=method.delivery_tag)

channel.basic_qos(prefetch_count=1)
channel.basic_consume(queue="rpc_queue", on_message_callback=on_request)
print("waiting", flush=True)
channel.start_consuming()
"""
RPC_CLIENT = """
import uuid
import pyqstore.compat.pika as pika
connection = pika.BlockingConnection(pika.ConnectionParameters(host="localhost"))
channel = connection.channel()
callback_queue = channel.queue_declare(queue="", exclusive=True).method.queue
response, corr_id = None, str(uuid.uuid4())

def on_response(ch, method, props, body):
    global response
    if corr_id == props.correlation_id:
        response = body

channel.basic_consume(queue=callback_queue, on_message_callback=on_response, auto_ack=True)
channel.basic_publish(exchange="", routing_key="rpc_queue", body="12",
    properties=pika.BasicProperties(reply_to=callback_queue, correlation_id=corr_id))
while response is None:
    connection.process_data_events(time_limit=None)
print(int(response))
"""

Begin = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts a program that goes on, and waits until it does; ends it."""
    processes = []

    def run(text: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", text, *arguments],
            env=os.environ | {"PYQSTORE_PATH": str(tmp_path / "store")},
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_hello_comes_to_who_waits_for_it(begin: Begin) -> None:
    receiver = begin(RECEIVE_HELLO)
    assert line_of(receiver) == "waiting"
    assert begin(SEND_HELLO).wait(SECONDS) == 0
    assert line_of(receiver) == "Hello!"


def test_a_worker_goes_on_with_what_a_program_sent_that_has_ended(begin: Begin) -> None:
    assert begin(SEND, "first").wait(SECONDS) == 0
    worker = begin(WORK)
    assert [line_of(worker), line_of(worker)] == ["waiting", "first False"]
    assert begin(SEND, "second", "third").wait(SECONDS) == 0  # through the worker
    assert [line_of(worker), line_of(worker)] == ["second False", "third False"]


def test_what_a_killed_owner_had_not_acknowledged_goes_to_the_next(
    begin: Begin, tmp_path: Path
) -> None:
    assert begin(SEND, "task").wait(SECONDS) == 0
    worker = begin(WORK, "keep")
    assert [line_of(worker), line_of(worker)] == ["waiting", "task False"]
    assert (tmp_path / "store/compat.json").stat().st_mode & 0o777 == 0o600
    worker.send_signal(signal.SIGKILL)
    worker.wait(SECONDS)
    following = begin(WORK)
    assert [line_of(following), line_of(following)] == ["waiting", "task True"]


@pytest.mark.parametrize(
    ("kind", "of_errors", "of_others", "sent", "errors", "others"),
    [
        ("fanout", [""], [""], ["", ""], ["", ""], ["", ""]),
        ("direct", ["error"], ["info", "error"], ["info", "error"], ["error"], ["info", "error"]),
        (
            "topic",
            ["*.error"],
            ["web.*"],
            ["web.info", "db.error", "web.error"],
            ["db.error", "web.error"],
            ["web.info", "web.error"],
        ),
    ],
)
def test_logs_reach_those_who_bound_their_keys(
    begin: Begin,
    kind: str,
    of_errors: list[str],
    of_others: list[str],
    sent: list[str],
    errors: list[str],
    others: list[str],
) -> None:
    first = begin(RECEIVE_LOGS, kind, *of_errors)
    assert line_of(first) == "waiting"
    second = begin(RECEIVE_LOGS, kind, *of_others)
    assert line_of(second) == "waiting"
    assert begin(EMIT_LOGS, kind, *sent).wait(SECONDS) == 0
    for receiver, keys in ((first, errors), (second, others)):
        assert [line_of(receiver) for _ in keys] == [f"{key} about {key}".strip() for key in keys]


def test_a_call_is_answered_by_another_process(begin: Begin) -> None:
    server = begin(RPC_SERVER)
    assert line_of(server) == "waiting"
    assert line_of(begin(RPC_CLIENT)) == "144"


def test_a_child_reaches_the_store_of_its_parent_after_fork(tmp_path: Path) -> None:
    parameters = pika.ConnectionParameters(str(tmp_path / "store"))
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                try:
                    channel.basic_publish("", "q", b"by the parent's connection")
                except pika.exceptions.StreamLostError:
                    with pika.BlockingConnection(parameters) as own:
                        own.channel().basic_publish("", "q", b"by its own")
                    status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert channel.basic_get("q", auto_ack=True)[2] == b"by its own"
        assert channel.basic_get("q")[2] is None


def test_a_store_that_lets_nobody_in_is_said_to(tmp_path: Path) -> None:
    hold = "import pyqstore, sys; s = pyqstore.open(sys.argv[1]); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path / "store")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert line_of(process) == "1"
        with pytest.raises(pyqstore.StoreLocked, match=rf"process {process.pid} .*share"):
            pyqstore.compat.attach(tmp_path / "store", timeout=0.1)
        process.communicate("\n")

"""What RabbitMQ exports of itself, imported: users come in, and everything is as it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pika
import pytest

import pyqstore

from .broker import Broker, is_installed


def pyqstore_imports(what: str, store: Path, file: Path) -> str:
    command = [sys.executable, "-m", "pyqstore", what, "import", str(store), str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def declare(channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
    """The same at RabbitMQ, and once more at a store that has it."""
    channel.exchange_declare("orders", "topic", durable=True, arguments={"alternate-exchange": "x"})
    channel.exchange_declare("inner", "headers", internal=True, durable=True, auto_delete=True)
    channel.queue_declare(
        "jobs",
        durable=True,
        arguments={"x-max-priority": 5, "x-message-ttl": 60_000, "x-queue-mode": "lazy"},
    )
    channel.queue_declare("kept", durable=True, auto_delete=True)
    channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_bind("jobs", "orders", "a.#")
    channel.queue_bind("kept", "inner", "", {"x-match": "any", "n": 1, "s": "é", "b": True})
    channel.exchange_bind("inner", "orders", "b.*")


def connected(port: int, name: str, password: str) -> pika.BlockingConnection:
    credentials = pika.PlainCredentials(name, password)
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", port, credentials=credentials, heartbeat=0)
    )


def test_an_export_of_rabbitmq_is_taken_whole(tmp_path: Path) -> None:
    if not is_installed():
        pytest.fail("the package rabbitmq-server is not installed")
    broker = Broker(tmp_path / "rabbitmq", managed=True)
    file, path = tmp_path / "definitions.json", tmp_path / "jobs.qs"
    try:
        broker.start()
        broker.manage("PUT", "users/ann", password="secret", tags="administrator")
        broker.manage("PUT", "permissions/%2f/ann", configure=".*", write="^orders$", read="")
        with connected(broker.port, "guest", "guest") as connection:
            declare(connection.channel())
        file.write_bytes(broker.manage("GET", "definitions"))
    finally:
        broker.stop()
    assert pyqstore_imports("user", path, file) == "2 users, 2 permissions\n"
    assert pyqstore_imports("definitions", path, file) == "2 exchanges, 3 queues, 3 bindings\n"
    with pyqstore.open(path) as store:
        port = int(store.listen("127.0.0.1:0").address.rpartition(":")[2])
        before = store.queues(), store.exchanges(), store.bindings()
        with connected(port, "guest", "guest") as connection:
            declare(connection.channel())
        assert (store.queues(), store.exchanges(), store.bindings()) == before
        with connected(port, "ann", "secret") as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("orders", "a.b", b"x", mandatory=True)
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="queue 'jobs'"):
                channel.basic_get("jobs")
        assert json.loads((path / "users.json").read_text())["users"][0]["tags"] != []

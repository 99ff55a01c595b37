"""The recipe of docs/SHOVEL.md for a device, with its commands as they stand there; our own
listener is the broker.  ``differential/test_shovel_recipes`` has the move to RabbitMQ."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pika
import pytest

import pyqstore

from ..recipes import commands
from ..serving import Served, served
from ..support import own_host, wait_until

RUN = [sys.executable, "-m", "pyqstore"]
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@contextmanager
def connected(address: str) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    host, _, port = address.rpartition(":")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port), heartbeat=0))
    try:
        yield connection.channel()
    finally:
        connection.close()


def publish(address: str, numbers: range) -> None:
    """As a program of the device does: confirmed when this returns."""
    with connected(address) as channel:
        channel.confirm_delivery()
        for number in numbers:
            channel.basic_publish("", "readings", b"%d" % number, PERSISTENT, mandatory=True)


def waiting(address: str) -> int:
    with connected(address) as channel:
        return int(channel.queue_declare("readings", passive=True).method.message_count)


def kill(served_: Served) -> None:
    served_.process.kill()
    served_.process.wait()


@pytest.mark.crash
def test_a_device_buffers_and_forwards(tmp_path: Path) -> None:
    """There is no network, then there is one; both stores are killed."""
    with pyqstore.open(tmp_path / "remote") as store:
        store.queue("readings")
    host = own_host()
    with socket.create_server((host, 0)) as taken:
        remote = f"{host}:{taken.getsockname()[1]}"
    declare, serve, forward = commands(
        "docs/SHOVEL.md",
        "A device that buffers for days and forwards",
        {
            "device.qs": str(tmp_path / "device"),
            "127.0.0.1:5672": "127.0.0.1:0",
            "amqps://USER:PASSWORD@HOST": f"amqp://guest:guest@{remote}",
        },
    )
    subprocess.run(RUN + declare[1:], check=True, timeout=60)
    assert serve[:2] == ["pyqstore", "serve"]
    with ExitStack() as stack:
        device = stack.enter_context(served(tmp_path / "device", *serve[3:]))
        device.addresses()
        shovel = stack.enter_context(subprocess.Popen(RUN + forward[1:]))
        stack.callback(shovel.terminate)
        publish(device.addresses()["amqp"], range(300))
        broker = stack.enter_context(served(tmp_path / "remote", "--listen", remote))
        broker.addresses()
        wait_until(lambda: waiting(remote) >= 300, 60)
        kill(broker)
        publish(device.addresses()["amqp"], range(300, 600))
        kill(device)
        device = stack.enter_context(served(tmp_path / "device", *serve[3:]))
        publish(device.addresses()["amqp"], range(600, 900))
        assert shovel.poll() is None
        broker = stack.enter_context(served(tmp_path / "remote", "--listen", remote))
        broker.addresses()
        wait_until(lambda: waiting(remote) >= 900, 60)
        shovel.terminate()
        assert shovel.wait(60) == 0
        assert waiting(device.addresses()["amqp"]) == 0
        assert broker.end()[0] == 0
    with pyqstore.open(tmp_path / "remote") as store, store.channel() as channel:
        found = set()
        while (message := channel.basic_get("readings", auto_ack=True)) is not None:
            found.add(int(message.body))
    assert found == set(range(900))

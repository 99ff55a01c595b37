"""A process that serves is killed under the load of clients: what they heard confirmed is there,
once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pika.exceptions
import pytest

import pyqstore

pytestmark = pytest.mark.crash

CLIENTS = 4
ROUNDS = 5
KILL_BEHIND = 300  # confirms of all clients
OWNER = """
import sys, time
import pyqstore

store, *others = [pyqstore.open(path) for path in sys.argv[1:]]
vhosts = {str(number): other for number, other in enumerate(others)}
print(store.listen("127.0.0.1:0", vhosts=vhosts).address, flush=True)
time.sleep(600)
"""


class Client:
    """Publishes with confirms until its connection is lost."""

    def __init__(self, port: int, name: str, vhost: str = "/") -> None:
        self.confirmed: list[bytes] = []
        self._last = b""
        self._name = name
        self._parameters = pika.ConnectionParameters(
            "127.0.0.1", port, virtual_host=vhost, heartbeat=0
        )
        self._thread = threading.Thread(target=self._publish)
        self._thread.start()

    def _publish(self) -> None:
        try:
            channel = pika.BlockingConnection(self._parameters).channel()
            channel.queue_declare("q", durable=True)
            channel.confirm_delivery()
            number = 0
            while True:
                body = b"%s %d " % (self._name.encode(), number) + b"x" * (number * 97 % 9000)
                self._last = body
                channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2))
                self.confirmed.append(body)
                number += 1
        except (pika.exceptions.AMQPError, OSError):
            pass

    def join(self) -> bytes:
        """What was under way, which may be there or not."""
        self._thread.join(120)
        assert not self._thread.is_alive()
        return self._last


@contextmanager
def owner(*paths: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that serves these stores, killed at the end, and its port."""
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", OWNER, *map(str, paths)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline().rpartition(":")[2])
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()


class Heard:
    """What clients of one store heard of, over all rounds."""

    def __init__(self, path: Path) -> None:
        self.confirmed: list[bytes] = []
        self._path = path
        self._undecided: set[bytes] = set()

    def add(self, clients: list[Client]) -> None:
        """Theirs, who have lost their connections; the store must have it."""
        self._undecided |= {client.join() for client in clients}
        self.confirmed += [body for client in clients for body in client.confirmed]
        with pyqstore.open(self._path) as store:
            found = [body for batch in store.browse("q") for body in batch["body"].to_pylist()]
        assert len(found) == len(set(found))
        assert set(self.confirmed) <= set(found) <= set(self.confirmed) | self._undecided


def test_what_clients_heard_confirmed_is_there_once_when_the_server_was_killed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store"
    heard = Heard(path)
    for turn in range(ROUNDS):
        with owner(path) as (process, port):
            clients = [Client(port, f"{turn}.{number}") for number in range(CLIENTS)]
            while sum(len(client.confirmed) for client in clients) < KILL_BEHIND:
                assert process.poll() is None
        heard.add(clients)
    assert len(heard.confirmed) >= ROUNDS * KILL_BEHIND
    assert pyqstore.verify(path).damages == 0


def test_each_vhost_has_what_its_own_clients_heard_confirmed_when_the_server_was_killed(
    tmp_path: Path,
) -> None:
    paths = {"/": tmp_path / "a", "0": tmp_path / "b"}
    heard = {vhost: Heard(path) for vhost, path in paths.items()}
    for turn in range(ROUNDS):
        with owner(*paths.values()) as (process, port):
            clients = {
                vhost: [Client(port, f"{vhost}.{turn}.{number}", vhost) for number in range(2)]
                for vhost in paths
            }
            while any(
                sum(len(client.confirmed) for client in each) < KILL_BEHIND // 4
                for each in clients.values()
            ):
                assert process.poll() is None
        for vhost, each in clients.items():
            heard[vhost].add(each)
    for vhost, path in paths.items():
        assert len(heard[vhost].confirmed) >= ROUNDS * KILL_BEHIND // 4
        assert pyqstore.verify(path).damages == 0

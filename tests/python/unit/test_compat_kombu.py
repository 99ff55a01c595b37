"""kombu's transport over a store: messages, acknowledgements, what becomes of the store and of
connections when processes end or fork.  kombu's own tests of it are in tests/python/foreign."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore.compat import share

kombu = pytest.importorskip("kombu")

import pyqstore.compat.kombu  # noqa: E402

from ..support import wait_until  # noqa: E402

SECONDS = 60
OWNER = """
import sys
from pyqstore.compat import attach
with attach(sys.argv[1]) as attachment:
    print("owned", attachment.store is not None, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "store"


@pytest.fixture
def connection(path: Path) -> Iterator[Any]:
    with kombu.Connection(f"pyqstore:///{path}") as opened:
        yield opened


def payloads(connection: Any, name: str, count: int) -> list[object]:
    """As many as are to come from a queue, taken from it, and what comes after them."""
    found = []
    queue = connection.SimpleQueue(name)
    while True:
        try:
            message = queue.get(timeout=SECONDS if len(found) < count else 0.2)
        except queue.Empty:
            queue.close()
            return found
        found.append(message.payload)
        message.ack()


def put(connection: Any, name: str, payload: object) -> None:
    queue = connection.SimpleQueue(name)
    queue.put(payload)
    queue.close()


def test_a_message_goes_through_a_queue_and_is_acknowledged(connection: Any) -> None:
    put(connection, "q", {"a": [1, "ä"]})
    assert payloads(connection, "q", 1) == [{"a": [1, "ä"]}]
    assert payloads(connection, "q", 0) == []


def test_what_was_not_acknowledged_comes_again_when_the_connection_is_closed(path: Path) -> None:
    with kombu.Connection(f"pyqstore:///{path}") as first:
        put(first, "q", 1)
        message = first.SimpleQueue("q").get(timeout=SECONDS)
        assert not message.delivery_info["redelivered"]
    with kombu.Connection(f"pyqstore:///{path}") as second:
        message = second.SimpleQueue("q").get(timeout=SECONDS)
        assert message.delivery_info["redelivered"]
        message.ack()


def test_draining_events_ends_when_its_time_is_over(connection: Any) -> None:
    connection.connect()
    with pytest.raises(TimeoutError):
        connection.drain_events(timeout=0.1)


def test_the_store_is_open_as_long_as_there_is_a_connection(path: Path) -> None:
    first, second = (kombu.Connection(f"pyqstore:///{path}") for _ in range(2))
    first.connect()
    second.connect()
    first.release()
    with pytest.raises(pyqstore.StoreLocked):
        pyqstore.open(path)
    second.release()
    pyqstore.open(path).close()


def test_a_url_without_a_path_is_the_store_that_the_environment_names(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYQSTORE_PATH", str(path))
    with kombu.Connection("pyqstore://") as connection:
        put(connection, "q", 1)
    with pyqstore.open(path) as store:
        assert store.queue_status("q").messages_ready == 1


def test_a_store_in_memory_is_shared_by_the_connections_of_the_process() -> None:
    with (
        kombu.Connection("pyqstore:///:memory:") as first,
        kombu.Connection("pyqstore:///:memory:") as second,
    ):
        put(first, "q", 1)
        assert payloads(second, "q", 1) == [1]


def test_options_of_the_store_and_of_the_connection_are_passed_on(path: Path) -> None:
    options = {"store": {"memory_budget": "64MiB"}, "confirm_publish": True}
    with kombu.Connection(f"pyqstore:///{path}", transport_options=options) as connection:
        put(connection, "q", 1)
        attachment = connection.connection.attachment
        assert attachment.store.options["memory_budget"] == 64 << 20
        assert attachment.store.stats()["messages_confirmed"] == 1


def test_a_store_that_the_program_opened_itself_is_used_when_it_is_shared(path: Path) -> None:
    path.parent.mkdir()
    url = f"pyqstore:///{path}"
    with pyqstore.open(path) as store:
        with (
            pytest.raises(kombu.exceptions.OperationalError, match="share"),
            kombu.Connection(url) as alone,
        ):
            alone.ensure_connection(max_retries=1, interval_start=0)
        with share(store), kombu.Connection(url) as connection:
            put(connection, "q", 1)  # without a confirm
            wait_until(lambda: store.queue_status("q").messages_ready == 1)


def test_a_child_reaches_the_store_of_its_parent_after_fork(connection: Any, path: Path) -> None:
    connection.connect()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with kombu.Connection(f"pyqstore:///{path}") as own:
                put(own, "q", "of the child")
                status = 0 if own.connection.attachment.store is None else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert payloads(connection, "q", 1) == ["of the child"]


def test_a_connection_takes_over_when_the_owner_is_killed(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "owned True\n"
        with kombu.Connection(f"pyqstore:///{path}") as connection:
            queue = kombu.Queue("q", kombu.Exchange("x"), "k")
            with connection.channel() as channel:
                queue(channel).declare()
            assert connection.connection.attachment.store is None
            owner.send_signal(signal.SIGKILL)
            owner.wait(SECONDS)
            producer = kombu.Producer(connection)
            producer.publish(
                {"n": 1},
                exchange=queue.exchange,
                routing_key="k",
                retry=True,
                retry_policy={"interval_start": 0.1, "max_retries": 20},
            )
            assert connection.connection.attachment.store is not None
            (message,) = [queue(connection.default_channel).get(no_ack=True)]
            assert message.payload == {"n": 1}


def test_a_path_with_a_percent_sign_is_unquoted_once(tmp_path: Path) -> None:
    with kombu.Connection(f"pyqstore:///{tmp_path}/a%2541") as connection:
        connection.connect()
        assert (tmp_path / "a%41" / "MANIFEST").exists()


def test_a_connection_that_was_lost_lets_go_of_the_store(path: Path) -> None:
    connection = kombu.Connection(f"pyqstore:///{path}")
    connection.connect()
    for _ in range(3):
        connection.connection.transport.sock.shutdown(socket.SHUT_RDWR)
        with pytest.raises(connection.recoverable_connection_errors):
            connection.drain_events(timeout=60)
        connection.ensure_connection(max_retries=3)
    connection.release()
    pyqstore.open(path).close()

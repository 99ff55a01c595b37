"""``pyqstore serve --vhost``: several stores in one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pika
import pika.exceptions
import pytest

import pyqstore

from ..serving import Served, served

LISTEN = ("--listen", "127.0.0.1:0")
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def connection_to(server: Served, vhost: str) -> pika.BlockingConnection:
    port = int(server.addresses()["amqp"].rpartition(":")[2])
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", port, virtual_host=vhost, heartbeat=0)
    )


def publish(connection: pika.BlockingConnection, body: bytes) -> None:
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", "q", body, PERSISTENT)


def bodies(path: Path) -> list[bytes]:
    with pyqstore.open(path, create=False) as store:
        assert store.recovery_report.torn_bytes == 0
        return [body for batch in store.browse("q") for body in batch["body"].to_pylist()]


def test_serve_has_a_store_for_each_vhost_and_ends_with_all_of_it_durable(tmp_path: Path) -> None:
    places = {"/": tmp_path / "a", "b": tmp_path / "of=b", "c d": tmp_path / "c"}
    options = [f"--vhost={name}={place}" for name, place in places.items() if name != "/"]
    with served(places["/"], *LISTEN, *options) as server:
        for name in places:
            publish(connection_to(server, name), name.encode())
        status, _, err = server.end()
        assert (status, err) == (0, "")
    assert {name: bodies(place) for name, place in places.items()} == {
        name: [name.encode()] for name in places
    }


def test_a_vhost_whose_store_fails_ends_alone_and_says_why(tmp_path: Path) -> None:
    place = tmp_path / "b"
    with served(tmp_path / "a", *LISTEN, "--vhost", f"b={place}") as server:
        staying, leaving = connection_to(server, "/"), connection_to(server, "b")
        idle = connection_to(server, "b")
        publish(staying, b"1")
        place.rename(tmp_path / "moved")
        with pytest.raises(pika.exceptions.AMQPError):
            publish(leaving, b"lost")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as ended:
            idle.process_data_events(time_limit=30)
        assert ended.value.reply_code == 320
        assert ended.value.reply_text == "CONNECTION_FORCED - vhost 'b' is down"
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="vhost b not found"):
            connection_to(server, "b")
        publish(staying, b"2")
        status, _, err = server.end()
        assert status == 0
        assert "vhost 'b' has ended, and others are served" in err
        assert "moved away while it was open" in err
    assert bodies(tmp_path / "a") == [b"1", b"2"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((*LISTEN, "--vhost", "b"), "vhost 'b': expected NAME=DIRECTORY"),
        ((*LISTEN, "--vhost", "=x"), "vhost '=x': expected NAME=DIRECTORY"),
        ((*LISTEN, "--vhost", "b=x", "--vhost", "b=y"), "vhost 'b' is there twice"),
        ((*LISTEN, "--vhost", "/=x"), "vhost '/' is there twice"),
        ((*LISTEN, "--vhost", "b=./a"), "vhosts '/' and 'b' have the same directory ./a"),
        (("--flight", "127.0.0.1:0", "--vhost", "b=x"), "--vhost needs --listen"),
    ],
)
def test_vhosts_that_cannot_be_make_no_store(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pyqstore", "serve", "a", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode != 0
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []

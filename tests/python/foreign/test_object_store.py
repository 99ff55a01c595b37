"""Backups and archives in an object store: moto's server, which speaks S3."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import pyqstore
from benchmarks.laboratory.rivals.server import Server, free_port
from pyqstore.backups import Target

from ..archiving import archived
from ..support import PERSISTENT, wait_until
from . import suites
from .playing import SECONDS, Fetched

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 300)]
BODY_BYTES = 3_000_000  # several parts each


class Bucket:
    """Of a server of its own, and commands with what it takes to reach it."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.url = f"http://127.0.0.1:{port}"
        self.place = "s3://kept/jobs"
        self.environment = {
            "AWS_ENDPOINT": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }
        made = urllib.request.Request(f"{self.url}/kept", method="PUT")
        urllib.request.urlopen(made, timeout=60).close()

    def suspend(self) -> None:
        """It answers nothing."""
        for each in self.server.processes():
            each.suspend()

    def resume(self) -> None:
        """It answers again."""
        for each in self.server.processes():
            each.resume()

    def run(self, *arguments: str | Path) -> tuple[int, str]:
        """Status and output of a command of pyqstore."""
        done = subprocess.run(
            [sys.executable, "-m", "pyqstore", *map(str, arguments)],
            env=os.environ | self.environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
        return done.returncode, done.stdout


@pytest.fixture
def bucket(tmp_path: Path, fetched: Fetched) -> Iterator[Bucket]:
    python = fetched(suites.python_of_moto)
    server, port = Server(tmp_path), free_port()
    server.run([python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port)
    yield Bucket(server, port)
    server.stop()


def publish(path: Path, numbers: range) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        for number in numbers:
            body = b"%d " % number + bytes(BODY_BYTES if number % 5 == 0 else 100)
            channel.basic_publish("", "q", body, PERSISTENT)


def numbers_in(path: Path) -> list[int]:
    assert pyqstore.verify(path).damages == 0
    found = []
    with pyqstore.open(path) as store, store.channel() as channel:
        while (message := channel.basic_get("q", auto_ack=True)) is not None:
            found.append(int(message.body.split(b" ", 1)[0]))
    return found


def test_a_store_comes_back_from_an_object_store(bucket: Bucket, tmp_path: Path) -> None:
    path = tmp_path / "jobs.qs"
    for upto in (10, 20):
        publish(path, range(upto - 10, upto))
        assert bucket.run("backup", path, bucket.place)[0] == 0
    status, said = bucket.run("restore", bucket.place, tmp_path / "again.qs")
    assert status == 0, said
    assert numbers_in(tmp_path / "again.qs") == list(range(20))
    assert numbers_in(path) == list(range(20))


def test_an_object_store_that_is_not_there_is_named(bucket: Bucket, tmp_path: Path) -> None:
    path = tmp_path / "jobs.qs"
    publish(path, range(3))
    status, said = bucket.run("backup", path, "s3://nothing/jobs")
    assert status != 0
    assert "s3://nothing/jobs" in said
    status, said = bucket.run("restore", bucket.place, tmp_path / "again.qs")
    assert status != 0
    assert bucket.place in said
    assert not (tmp_path / "again.qs").exists()
    assert numbers_in(path) == list(range(3))


def test_a_store_is_archived_in_an_object_store_and_restored_to_a_moment(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the server stands still nothing waits for it."""
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    with pyqstore.open(tmp_path / "jobs.qs", message_file_bytes="1MiB") as store:
        queue = store.queue("q")

        def put(numbers: range) -> None:
            for number in numbers:
                queue.put(b"%d " % number + bytes(BODY_BYTES if number % 5 == 0 else 100))
            store.sync()

        put(range(5))
        with archived(store, Target(bucket.place)) as now:
            put(range(5, 15))
            now.wait_for_all(store)
            moment = datetime.now(UTC)
            bucket.suspend()
            put(range(15, 25))
            wait_until(lambda: now.last.lag_seconds > 2)
            assert now.last.lag_bytes > 0
            bucket.resume()
            put(range(25, 30))
            wait_until(lambda: now.last.lag_bytes == 0, SECONDS)
            now.wait_for_all(store)
        assert now.last.restarts == 0
    for until, count in (((), 30), (("--until", moment.isoformat()), 15)):
        path = tmp_path / f"again-{count}"
        status, said = bucket.run("restore", bucket.place, path, *until)
        assert status == 0, said
        assert numbers_in(path) == list(range(count))

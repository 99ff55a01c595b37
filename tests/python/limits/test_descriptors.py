"""Descriptors and threads run out: what needs one says so, the store goes on, nothing is lost."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pyqstore

from ..support import PERSISTENT, get, wait_until

OPTIONS = {
    "memory_budget": 1 << 18,
    "journal_file_bytes": 65536,
    "message_file_bytes": 65536,
    "segment_entries": 64,
}


@contextmanager
def no_descriptors(left: int) -> Iterator[None]:
    """Take all descriptors of the process but so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    taken: list[int] = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        for descriptor in taken[:left]:
            os.close(descriptor)
        del taken[:left]
    try:
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def body(number: int) -> bytes:
    return b"%08d" % number * (100 if number % 3 else 900)


def publish(channel: pyqstore.Channel, first: int, end: int) -> int:
    """Publish until one is refused; the number of the next."""
    for number in range(first, end):
        try:
            channel.basic_publish("", "q", body(number), PERSISTENT)
        except (pyqstore.StoreError, OSError):
            return number
    return end


@pytest.mark.parametrize("left", range(4))
def test_store_goes_on_when_descriptors_come_back(tmp_path: Path, left: int) -> None:
    with pyqstore.open(tmp_path / "store", **OPTIONS) as store:
        channel = store.channel()
        channel.queue_declare("q", durable=True)
        assert publish(channel, 0, 600) == 600
        store.sync()
        taken = 0
        with no_descriptors(left):
            published = publish(channel, 600, 1500)
            for _ in range(3):
                try:
                    store.checkpoint()
                except pyqstore.StoreError as error:
                    assert error.status in ("QS_EMFILE", "QS_ESTORE_FULL")  # noqa: PT017
            try:
                while taken < 200 and (message := channel.basic_get("q")) is not None:
                    assert message.body == body(taken)
                    taken += 1
            except pyqstore.StoreError as error:
                assert error.status == "QS_EMFILE"  # noqa: PT017
        assert not store.stats()["failed"]
        channel.close()  # all that was taken is back
        channel = store.channel()
        assert publish(channel, published, 1800) == 1800
        store.checkpoint()
        for number in range(1800):
            message = get(channel, "q")
            assert message.body == body(number)
            channel.basic_ack(message.delivery_tag)
        wait_until(lambda: store.queue_status("q")["messages_ready"] == 0)


def test_open_without_descriptors_says_so(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "store", **OPTIONS) as store:
        channel = store.channel()
        channel.queue_declare("q", durable=True)
        assert publish(channel, 0, 300) == 300
    for left in range(0, 24, 2):
        with no_descriptors(left):
            try:
                pyqstore.open(tmp_path / "store", **OPTIONS).close()
            except pyqstore.StoreError as error:
                assert error.status == "QS_EMFILE", error  # noqa: PT017
                assert "Too many open files" in str(error)  # noqa: PT017
    with pyqstore.open(tmp_path / "store", **OPTIONS) as store:
        assert store.queue_status("q")["messages_ready"] == 300


NO_THREADS = """
import resource, sys
import pyqstore
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
try:
    pyqstore.open(sys.argv[1])
except MemoryError as error:
    assert "thread" in str(error), error
    print("told")
"""


@pytest.mark.skipif(os.geteuid() == 0, reason="no limit of threads holds for root")
def test_open_without_threads_says_so(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", NO_THREADS, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.stdout == "told\n", told.stderr

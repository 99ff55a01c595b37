"""One store in a directory of its own, a channel on it, and small helpers."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pyqstore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(path: Path) -> Iterator[pyqstore.Store]:
    with pyqstore.open(path, journal_file_bytes="1MiB") as store:
        yield store


@pytest.fixture
def channel(store: pyqstore.Store) -> Iterator[pyqstore.Channel]:
    with store.channel() as channel:
        yield channel


@pytest.fixture
def queue(channel: pyqstore.Channel) -> str:
    return channel.queue_declare("q", durable=True).queue


@pytest.fixture
def bodies() -> Callable[[pyqstore.Channel, str], list[bytes]]:
    """Take and acknowledge everything ready in a queue."""

    def take(channel: pyqstore.Channel, queue: str) -> list[bytes]:
        taken = []
        while (message := channel.basic_get(queue, auto_ack=True)) is not None:
            taken.append(message.body)
        return taken

    return take


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run code in another interpreter; its arguments are strings."""

    def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", code, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run

"""A process that has a store open, for others who ask it to adopt staged files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import pyqstore
from pyqstore import _core

ROWS = 2000
OWNER = """
import sys, pyqstore
with pyqstore.open(sys.argv[1]) as store, store.channel() as channel:
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_declare("q", durable=True)
    print("ready", flush=True)
    sent = 0
    while line := sys.stdin.readline():
        if line == "work\\n":
            channel.basic_publish("", "q", b"own")
            sent += 1
            while (message := channel.basic_get("q")) is not None:
                channel.basic_ack(message.delivery_tag)
        print(store.stream("s").next, flush=True)
"""


class Owner:
    """A process that has the store open."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def send(self, word: str) -> int:
        """Rows of its stream."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def write(path: Path, key: str, rows: int = ROWS) -> Path:
    with pyqstore.StagedWriter(path, routing_key=key) as writer:
        writer.write_batch(pa.record_batch({"body": pa.array([b"row"] * rows, pa.binary())}))
    return path


def rows_of(path: Path, queue: str = "s") -> int:
    with pyqstore.open(path, create=False) as store:
        status = store.queue_status(queue)
        return status.next if status.stream else status.messages_ready


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def ask(path: Path, file: Path, key: str, seconds: float) -> Any:
    request = _core.Request(
        os.fsencode(path), [os.fsencode(file)], key, (), (), True, int(seconds * 1e9)
    )
    request.send()
    return request


def left(path: Path) -> list[str]:
    return sorted(os.listdir(path / "inbox"))

"""Celery Flower, unpatched: it asks the management API for queues, and workers by AMQP."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

import pyqstore
from benchmarks.laboratory.rivals.server import free_port

from . import suites
from .playing import SECONDS, Fetched

PROGRAMS = Path(__file__).parent / "programs"
WAITING = 7
T = TypeVar("T")


class Flower:
    """Its page and its API."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, body: bytes | None = None) -> str:
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=body,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=SECONDS) as answer:
            told: str = answer.read().decode()
        return told

    def cells(self) -> list[str]:
        """Of the table of its page of queues."""
        return re.findall(r"<td>([^<]*)</td>", self.ask("/broker"))

    def length(self, queue: str) -> int | None:
        """None: it does not know the queue."""
        told: Any = json.loads(self.ask("/api/queues/length"))
        found = [each["messages"] for each in told["active_queues"] if each["name"] == queue]
        return found[0] if found else None


def wait_for(what: Callable[[], T], wanted: Callable[[T], bool]) -> T:
    end = time.monotonic() + SECONDS
    while True:
        try:
            found = what()
            if wanted(found) or time.monotonic() > end:
                return found
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            if time.monotonic() > end:
                raise
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(3 * SECONDS + 300)
def test_flower_shows_queues_and_sends_tasks(
    store: pyqstore.Store, tmp_path: Path, fetched: Fetched
) -> None:
    python = fetched(suites.python_of_flower)
    listener = store.listen("127.0.0.1:0")
    shutil.copy(PROGRAMS / "flower_tasks.py", tmp_path)
    environment = os.environ | {
        "BROKER": f"amqp://guest:guest@{listener.address}//",
        "FLOWER_UNAUTHENTICATED_API": "true",
        "DONE": str(tmp_path / "done"),
    }

    def run(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [python, "-m", "celery", "-A", "flower_tasks", *arguments],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    flower = Flower(free_port())
    with store.serve_page(0) as page:
        place = page.url.replace("://", "://guest:guest@") + "api/"
        processes = [
            run("flower", "--address=127.0.0.1", f"--port={flower.port}", f"--broker-api={place}"),
            run("worker", "-P", "solo", "-l", "warning"),
        ]
        try:
            cells = wait_for(flower.cells, lambda found: "celery" in found)
            assert cells[:2] == ["celery", "0"]
            sent = flower.ask("/api/task/send-task/flower_tasks.write", b'{"args": ["by flower"]}')
            assert "task-id" in sent
            done = tmp_path / "done"
            assert wait_for(done.exists, bool)
            assert done.read_text() == "by flower"
            processes[1].terminate()
            assert processes[1].wait(SECONDS) == 0
            with store.channel() as channel:
                channel.confirm_select()
                for _ in range(WAITING):
                    channel.basic_publish("", "celery", b"x")
                channel.wait_for_confirms()
            assert wait_for(lambda: flower.length("celery"), lambda n: n == WAITING) == WAITING
        finally:
            for process in processes:
                process.kill()
                process.wait()

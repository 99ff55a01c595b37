"""A process of Spark's that has a store is killed while it works."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def killing(store: Path, module: str) -> Iterator[list[int]]:
    """Kill the store's owner when it is a process that runs ``module``, a little later each time,
    three times at most; its numbers."""
    over = threading.Event()
    killed: list[int] = []

    def kill() -> None:
        while not over.is_set() and len(killed) < 3:
            owner = (store / "LOCK").read_text().strip() or "0"
            with suppress(OSError):
                if module in Path(f"/proc/{owner}/cmdline").read_text():
                    time.sleep(0.005 * len(killed))
                    os.kill(int(owner), signal.SIGKILL)
                    killed.append(int(owner))
                    time.sleep(0.5)
            time.sleep(0.001)

    watcher = threading.Thread(target=kill)
    watcher.start()
    yield killed
    over.set()
    watcher.join()

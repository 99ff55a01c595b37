"""What a rival has to be able to do, and what all of them share.

Each module beside this one uses one rival as its experts would: durable messages, the fastest way
its users have for each of the four workloads.  A rival is started once and stays, as a store or a
server does, so that its files are there and warm when the clock runs.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

BATCH = 1000
"""Messages for one durable answer, in batches and when acknowledging."""
OUTSTANDING = 1000
"""Single messages that are sent before the first answer is waited for, where a client needs a
bound."""
ANSWER_SECONDS = 60.0
"""No answer takes that long, unless it never comes."""


class Rival(Protocol):
    """A queue on a disk: a library's file, or a server that the benchmark runs."""

    name: str
    """As in the tables, and for ``--only``."""
    is_stream: bool = False
    """A log that stays when it was read: each reader keeps its place, and acknowledges nothing."""

    def missing(self) -> str | None:
        """What is not installed and how to get it; None when all is there."""

    def version(self) -> str:
        """What exactly is measured; asked after start."""

    def start(self, directory: Path) -> None:
        """Open the library's file, or run the server, with all data in an empty directory."""

    def publish_and_wait(self, body: bytes, count: int) -> list[float]:
        """One message, its durable answer, the next: the microseconds each took."""

    def publish_pipelined(self, bodies: Sequence[bytes]) -> None:
        """Single messages the fastest durable way; returns when all of them are answered."""

    def publish_batches(self, batch: Sequence[bytes], batches: int) -> None:
        """The same batch several times, with one durable answer for each."""

    def consume(self, count: int) -> list[bytes]:
        """Receive so many bodies in order and acknowledge them as durably as there is a way to."""

    def clock(self) -> float:
        """Seconds that go on while the rival works; what takes none of them is not counted.

        A client that is a process of its own tells its own, for it is handed all bodies through a
        pipe before it begins, and gives them back when it is done.
        """
        return time.perf_counter()

    def stop(self) -> None:
        """Close the file, end the server.  Harmless when start failed."""


def packages_missing(*packages: str) -> str | None:
    """Which of these importable packages are not there, and how to get them."""
    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    if not absent:
        return None
    return f"Python has no {', '.join(absent)}: pip install 'pyqstore[rivals]'"


def package_version(distribution: str) -> str:
    """Name and version of what pip installed."""
    return f"{distribution} {importlib.metadata.version(distribution)}"

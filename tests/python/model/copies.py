"""Copies of the directory of an open store: what a SIGKILL at that moment would leave."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path


def _listing(path: Path) -> list[tuple[str, int, int, int]]:
    found = []
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(os.path.join(folder, name))
                found.append(
                    (os.path.join(folder, name), status.st_mtime_ns, status.st_ino, status.st_size)
                )
    return sorted(found)


def copy_store(source: Path, target: Path) -> None:
    """Copy it while nothing is written there."""
    deadline = time.monotonic() + 60
    while True:
        before = _listing(source)
        with contextlib.suppress(shutil.Error):
            shutil.copytree(source, target)
            if _listing(source) == before:
                return
        assert time.monotonic() < deadline
        shutil.rmtree(target)

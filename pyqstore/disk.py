"""What is to survive a power cut, where Python writes it."""

from __future__ import annotations

import os

__all__ = ["sync"]


def sync(path: str | os.PathLike[str]) -> None:
    """Return when a file's content, or the names in a directory, are on the disk.  OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""What runs below strace, for syncs to count: a rival's name and an empty directory are given."""

from __future__ import annotations

import sys
from pathlib import Path

from .known import known
from .syncs import BEGIN, END, MESSAGES

BODY = b"x" * 100


def publish(name: str, directory: Path) -> None:
    """So many messages, each answered before the next, when as many were before."""
    rival = known()[name]
    data = directory / "data"
    data.mkdir()
    try:
        rival.start(data)
        rival.publish_and_wait(BODY, MESSAGES)
        (directory / BEGIN).touch()
        rival.publish_and_wait(BODY, MESSAGES)
        (directory / END).touch()
    finally:
        rival.stop()


if __name__ == "__main__":
    publish(sys.argv[1], Path(sys.argv[2]))

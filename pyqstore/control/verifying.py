"""The operation that reads and checks all files; for an open store those of a snapshot."""

from __future__ import annotations

import os
import secrets
import shutil

from ..findings import Verification, verify
from ..store import Store
from .talk import Talk
from .wire import Report

__all__ = ["verify_closed", "verify_open"]


def verify_open(store: Store, _arguments: Report, talk: Talk) -> Report:
    """Verifies a snapshot beside the store, and removes it.  Reports the progress."""
    place = f"{store.directory}.{secrets.token_hex(8)}.verifying"
    try:
        store.snapshot(place)
        return _verified(place, talk)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def verify_closed(directory: str | os.PathLike[str], _arguments: Report, talk: Talk) -> Report:
    """Verifies a store that no process has open."""
    return _verified(directory, talk)


def _verified(directory: str | os.PathLike[str], talk: Talk) -> Report:
    def progress(done: int, total: int) -> None:
        talk.check()
        talk.tell({"done": done, "total": total})

    found: Verification = verify(directory, progress=progress)
    return {**vars(found), "damage": [place._asdict() for place in found.damage]}

"""Making the bases of an archive, beside the parts."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..backups.keeping import object_name
from ..backups.making import send
from ..backups.target import Target
from ..errors import Error
from .keeping import FILES, Base, next_base, prune

if TYPE_CHECKING:
    from ..store import Store
    from .choices import Choices

__all__ = ["BaseMaker"]

_log = logging.getLogger("pyqstore")
_JOURNAL_BYTES = 1 << 30  # and what the last base has: with more behind it there is another one
_AGAIN_S = 1.0  # after one that failed, at first
_AGAIN_MOST_S = 60.0
_JOIN_S = 10.0


class _Stopped(Exception):
    """The archive ends."""


class BaseMaker:
    """Makes one when it is due, in a thread of its own."""

    def __init__(self, store: Store, target: Target, choices: Choices) -> None:
        self._store = store
        self._target = target
        self._choices = choices
        self._thread: threading.Thread | None = None
        self._stops = threading.Event()
        self._last: Base | None = None
        self._last_at = 0.0
        self._again_at = 0.0
        self._wait = _AGAIN_S
        self.count: int = 0
        self.sent_bytes: int = 0
        self.error: str | None = None

    @property
    def stream(self) -> str:
        """That the last base begins; "": there is none."""
        return "" if self._last is None else self._last.stream

    def look(self, stream: str, uuid: str, lsn: int) -> None:
        """Begin with one if it is due: the parts of the stream have come to ``lsn``."""
        if self._thread is not None and self._thread.is_alive():
            return
        if self._is_due(stream, lsn) and time.monotonic() >= self._again_at:
            self._thread = threading.Thread(
                target=self._run, args=(stream, uuid), name="pyqstore-archive-base", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """One that is being made is given up."""
        self._stops.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def _is_due(self, stream: str, lsn: int) -> bool:
        last = self._last
        if last is None or last.stream != stream:
            return True
        if lsn == last.lsn:
            return False
        age = time.monotonic() - self._last_at
        is_long = lsn - last.lsn > _JOURNAL_BYTES + last.size
        return is_long or age >= self._choices.base_hours * 3600

    def _run(self, stream: str, uuid: str) -> None:
        try:
            self._last, self._last_at = self._made(stream, uuid), time.monotonic()
            self.count += 1
            self.error, self._wait = None, _AGAIN_S
            if self._choices.keep_days is not None:
                prune(self._target, self._choices.keep_days)
        except _Stopped:
            pass
        except (OSError, ValueError, Error) as error:
            if not self._stops.is_set():
                if self.error is None:
                    _log.warning("archive: a base cannot be made, and is tried again: %s", error)
                self.error = str(error)
            self._again_at = time.monotonic() + self._wait
            self._wait = min(2 * self._wait, _AGAIN_MOST_S)

    def _made(self, stream: str, uuid: str) -> Base:
        home = Path(os.path.abspath(self._store.directory))
        parent = Path(self._choices.temporary or home.parent)
        copy = parent / f".{home.name}.{secrets.token_hex(8)}.archive"
        try:
            from_lsn = self._store._durable_lsn()
            self._store.snapshot(copy)
            lsn = self._store._durable_lsn()
            name, made = next_base(self._target)
            sent = send(copy, self._target, self._check, FILES)
        finally:
            shutil.rmtree(copy, ignore_errors=True)
        base = Base(name, made, uuid, stream, from_lsn, lsn, sent.files)
        self._target.put(base.place, [base.document()])
        self.sent_bytes += sent.sent_bytes
        there = self._target.listed(FILES)
        for each in base.files:
            if object_name(each.sha256, FILES).removeprefix(f"{FILES}/") not in there:
                self._target.remove([base.place])
                raise OSError(f"{self._target.place}: what {each.name} holds was removed meanwhile")
        return base

    def _check(self, _done: int, _total: int) -> None:
        if self._stops.is_set():
            raise _Stopped

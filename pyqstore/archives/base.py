"""Making the bases of an archive, beside the parts."""

from __future__ import annotations

import glob
import logging
import math
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
from .claiming import Claim, Claimed
from .keeping import FILES, Base, next_base, prune

if TYPE_CHECKING:
    from ..store import Store
    from .choices import Choices

__all__ = ["BaseMaker"]

_log = logging.getLogger("pyqstore")
_JOURNAL_BYTES = 1 << 30  # and what the last base has: with more behind it there is another one
_AGAIN_S = 1.0  # after one that failed, at first
_AGAIN_MOST_S = 60.0
_CHECK_S = 60.0  # between two looks at who has the target
_PRUNE_AGAIN_S = 60.0
_JOIN_S = 10.0


class _Stopped(Exception):
    """The archive ends."""


class BaseMaker:
    """Makes a base when it is due, in a thread of its own."""

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
        self._claim: Claim | None = None
        self._checks_at = math.inf
        self._prunes_at = math.inf
        self._base_error: str | None = None
        self._prune_error: str | None = None
        self.count: int = 0
        self.sent_bytes: int = 0
        self.claimed: Claimed | None = None
        """Another archive has the target: this one is to end."""

    @property
    def stream(self) -> str:
        """The stream of parts after the last base; "": there is no base."""
        return "" if self._last is None else self._last.stream

    @property
    def error(self) -> str | None:
        """The present error."""
        return self._base_error or self._prune_error

    def look(self, stream: str, uuid: str, lsn: int) -> None:
        """Begin a base if it is due: the parts of the stream have reached ``lsn``."""
        if self._thread is not None and self._thread.is_alive():
            return
        now = time.monotonic()
        is_due = self._is_due(stream, lsn) and now >= self._again_at
        if is_due or now >= min(self._checks_at, self._prunes_at):
            thread = threading.Thread(
                target=self._run,
                args=(stream, uuid, is_due),
                name="pyqstore-archive-base",
                daemon=True,
            )
            try:
                thread.start()
            except RuntimeError as error:  # there can be no thread now
                self._fail(error)
            else:
                self._thread = thread

    def close(self) -> None:
        """End the thread, and give up a base that is being made."""
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

    def _run(self, stream: str, uuid: str, is_due: bool) -> None:
        try:
            if is_due:
                self._claim = self._claim or Claim(self._target, uuid)
                self._last, self._last_at = self._made(stream, uuid, self._claim), time.monotonic()
                self.count += 1
                if self._choices.keep_days is not None:
                    self._prunes_at = time.monotonic()
            elif self._claim is not None:
                self._claim.check()
            self._base_error, self._wait = None, _AGAIN_S
        except _Stopped:
            return
        except Claimed as error:
            self.claimed = error
            return
        except Exception as error:  # the next look begins another thread
            self._fail(error)
        self._checks_at = time.monotonic() + _CHECK_S
        self._prune()

    def _fail(self, error: Exception) -> None:
        if not self._stops.is_set():
            if self._base_error is None:
                _log.warning("archive: a base cannot be made, and is tried again: %s", error)
            self._base_error = str(error) or repr(error)
        self._again_at = time.monotonic() + self._wait
        self._wait = min(2 * self._wait, _AGAIN_MOST_S)

    def _prune(self) -> None:
        """Prune the target after a base, and repeat until that succeeds."""
        if self._choices.keep_days is None or self._stops.is_set():
            return
        if time.monotonic() < self._prunes_at:
            return
        try:
            prune(self._target, self._choices.keep_days)
            self._prune_error, self._prunes_at = None, math.inf
        except Exception as error:
            if self._prune_error is None:
                _log.warning(
                    "archive: what is old cannot be removed, and is tried again: %s", error
                )
            self._prune_error = f"what is old cannot be removed: {str(error) or repr(error)}"
            self._prunes_at = time.monotonic() + _PRUNE_AGAIN_S

    def _made(self, stream: str, uuid: str, claim: Claim) -> Base:
        home = Path(os.path.abspath(self._store.directory))
        status = home.stat()
        parent = Path(self._choices.temporary or home.parent)
        prefix = f".{home.name}.{status.st_dev:x}-{status.st_ino:x}."
        for left in parent.glob(f"{glob.escape(prefix)}*.archive"):  # by a killed process
            shutil.rmtree(left, ignore_errors=True)
        copy = parent / f"{prefix}{secrets.token_hex(8)}.archive"
        claim.make()
        try:
            from_lsn = self._store._durable_lsn()
            self._store.snapshot(copy)
            lsn = self._store._durable_lsn()
            name, made = next_base(self._target)
            sent = send(copy, self._target, self._check, FILES)
        finally:
            shutil.rmtree(copy, ignore_errors=True)
        base = Base(name, made, uuid, stream, from_lsn, lsn, sent.files)
        claim.check()
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

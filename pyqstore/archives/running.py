"""An archive of a store, in the process that has it open."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..archive_reports import Archived, behind_since, known_to
from ..backups.target import Target
from ..callbacks import check_callable
from ..errors import Error
from .base import BaseMaker
from .choices import Choices
from .claiming import check_uuids
from .keeping import new_stream
from .moments import Moments
from .parts import Head, Part
from .reading import BrokenJournal, JournalReader
from .sending import Sender

if TYPE_CHECKING:
    from ..store import Store

__all__ = ["archive"]

_log = logging.getLogger("pyqstore")
_LOOK_S = 0.1  # between two looks at how far the journal is durable
_DRAIN_S = 7.0  # in which the rest is sent at the end
_ANEW_S = 1.0  # before it begins anew, at first; twice as long each time
_ANEW_MOST_S = 300.0
_CALM_S = 600.0  # after which it counts as the first time
_LATE_S = 60.0  # for which what is durable waits until a warning is logged


def archive(
    store: Store,
    target: Target,
    stop: threading.Event,
    choices: Choices | None = None,
    look: Callable[[Archived], object] = lambda _report: None,
) -> Archived:
    """Archive the store until ``stop`` is set, then send what is durable, for 7 s at most, and
    return a report.  ``look`` is called with a report ten times a second.

    FileExistsError: the store is archived already, or the target has the archive of another store,
    or another archive, for example that of a copy of the store, has begun to write to it;
    ValueError: the store is in memory, or an option makes no sense; OSError: the target cannot be
    reached at the beginning; StoreFailed, StoreClosed.
    """
    check_callable(look=look)
    choices = choices or Choices()
    choices.check()
    if store.directory == ":memory:":
        raise ValueError("a store in memory cannot be archived: it ends with its process")
    work = _Archive(store, target, choices)
    with known_to(store, work.report):
        return work.run(stop, look)


class _Archive:
    """A running archive.  Any thread may call ``report``."""

    def __init__(self, store: Store, target: Target, choices: Choices) -> None:
        self._store = store
        self._target = target
        self._choices = choices
        self._began = time.monotonic()
        self._behind_since = behind_since(store)
        """The last time at which everything durable could be restored, if it cannot now."""
        self._anew_at = self._begun_at = 0.0
        self._wait = _ANEW_S
        self._restarts = 0
        self._damages = 0
        self._trouble: str | None = None
        self._is_late = False
        self._reader: JournalReader | None = None
        self._stream = ""
        self._from_lsn = 0
        self._number = 0
        self._moments = Moments(0)
        self._part: Part | None = None
        self._part_bytes = 0
        self._part_began = 0.0
        self._sender: Sender | None = None
        self._bases = BaseMaker(store, target, choices)

    def run(self, stop: threading.Event, look: Callable[[Archived], object]) -> Archived:
        """See ``archive``."""
        try:
            reader = self._begin()
        except BrokenJournal as error:
            raise OSError(f"{self._store.directory}: {error}") from error
        try:
            check_uuids(self._target, reader.uuid)
            self._sender = Sender(self._target)
            while not stop.wait(_LOOK_S):
                self._step(self._sender)
                look(self.report())
            self._finish(self._sender)
        finally:
            if self._sender is not None and not self._sender.drain(_DRAIN_S):
                _log.warning("archive: it ends, and not all that is durable was sent")
            self._bases.close()
            report = self.report()
            self._end()
        return report

    # ---- a stream of parts ----

    def _begin(self) -> JournalReader:
        directory = os.path.abspath(self._store.directory)
        reader = JournalReader(self._store, directory, self._choices.lag_bytes)
        self._stream, self._from_lsn, self._number = new_stream(), reader.lsn, 0
        self._moments = Moments(reader.lsn)
        self._reader, self._begun_at = reader, time.monotonic()
        return reader

    def _end(self) -> None:
        if self._reader is not None:
            self._behind_since = time.monotonic() - self.report().lag_seconds
            self._damages += self._reader.damages
            self._reader.close()
        self._reader = self._part = None

    def _step(self, sender: Sender) -> None:
        """One look.  If the engine gave up the journal, the archive begins anew; the contents of
        the target stay useful.  FileExistsError: another archive has the target."""
        if self._bases.claimed is not None:
            raise self._bases.claimed
        try:
            if self._reader is not None or time.monotonic() >= self._anew_at:
                reader = self._reader or self._begin()
                self._read(reader, sender)
                self._bases.look(self._stream, reader.uuid, reader.lsn)
        except FileExistsError:
            raise
        except (BrokenJournal, OSError, MemoryError) as error:
            self._give_up(str(error) or repr(error))
        self._warn()

    def _give_up(self, why: str) -> None:
        _log.warning("archive: it begins anew, with another base: %s", why)
        self._trouble = why
        self._restarts += 1
        if time.monotonic() - self._begun_at > _CALM_S:
            self._wait = _ANEW_S
        self._anew_at = time.monotonic() + self._wait
        self._wait = min(2 * self._wait, _ANEW_MOST_S)
        self._end()

    def _finish(self, sender: Sender) -> None:
        """Send what is durable now, as far as time permits."""
        until = time.monotonic() + _DRAIN_S
        self._step(sender)
        while self._reader is not None and self._reader.lsn < self._reader.durable:
            if time.monotonic() > until:
                return
            time.sleep(_LOOK_S / 10)
            self._step(sender)
        self._close_part(sender)

    # ---- parts ----

    def _read(self, reader: JournalReader, sender: Sender) -> None:
        durable = reader.look()
        self._moments.note(durable)
        most = self._choices.part_bytes
        while reader.lsn < durable and sender.has_room:
            part = self._part or self._open_part(reader)
            self._part_bytes += reader.read(part, durable, most - self._part_bytes)
            if self._part_bytes >= most or reader.wants_part:
                self._close_part(sender)
        age = time.monotonic() - self._part_began
        if self._part is not None and age >= self._choices.part_seconds and sender.has_room:
            self._close_part(sender)

    def _open_part(self, reader: JournalReader) -> Part:
        self._number += 1
        head = Head(self._number, reader.lsn, self._moments.first_behind(reader.lsn))
        part = self._part = Part(reader.uuid, self._stream, head, "", reader.lsn)
        self._part_bytes, self._part_began = 0, time.monotonic()
        if self._number == 1:
            reader.add_header(part)
        return part

    def _close_part(self, sender: Sender) -> None:
        part, self._part = self._part, None
        if part is not None:
            part.times = self._moments.take(part.to_lsn)
            sender.put(part)

    # ---- what is told ----

    def _warn(self) -> None:
        lag = self.report().lag_seconds
        if lag > _LATE_S and not self._is_late:
            _log.warning("archive: what was durable %.0f s ago is not archived yet", lag)
        self._is_late = lag > _LATE_S

    def _error(self) -> str | None:
        sent = None if self._sender is None else self._sender.error
        is_begun = self._reader is not None and self._bases.stream == self._stream
        return sent or self._bases.error or (None if is_begun else self._trouble)

    def _durable(self) -> int:
        try:
            return self._store._durable_lsn()
        except Error:  # it is closed
            return 0

    def report(self) -> Archived:
        """The present report."""
        sender, reader, made = self._sender, self._reader, self._bases
        now, durable, moments = time.monotonic(), self._durable(), self._moments
        moments.note(durable)
        stream, sent = ("", 0) if sender is None else sender.sent
        sent = sent if stream == self._stream else self._from_lsn
        is_restorable = reader is not None and made.stream == self._stream
        lag = moments.waits_s(sent) if is_restorable else now - self._behind_since
        return Archived(
            bases=made.count,
            parts=0 if sender is None else sender.parts,
            sent_bytes=made.sent_bytes + (0 if sender is None else sender.bytes),
            journal_bytes=0 if sender is None else sender.journal_bytes,
            lag_bytes=max(0, durable - sent),
            lag_seconds=round(lag, 3),
            restarts=self._restarts,
            damages=self._damages + (0 if reader is None else reader.damages),
            restorable=is_restorable,
            seconds=round(now - self._began, 3),
            error=self._error(),
        )

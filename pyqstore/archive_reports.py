"""What an archive tells of its work, for who looks at its store."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from .errors import Error

if TYPE_CHECKING:
    from .store import Store

__all__ = ["Archived", "archive_of", "behind_since", "known_to"]

_lock = threading.Lock()
_known: WeakKeyDictionary[Store, Callable[[], Archived]] = WeakKeyDictionary()
_ended: WeakKeyDictionary[Store, _Failed] = WeakKeyDictionary()


@dataclass(frozen=True)
class Archived:
    """What was archived since it began, and what was not yet.

    - ``bases``, ``parts``: objects that the target has; ``sent_bytes``: of them, compressed;
      ``journal_bytes``: of the journal in them.
    - ``lag_bytes``: of the journal, durable in the store and not in the target.
    - ``lag_seconds``: for how long the oldest of them has been durable; 0: there is none.  While
      there is no base to begin at: since when, or since the beginning.
    - ``restarts``: how often the parts had to begin anew with a base, because the target took too
      long or the disk was full.
    - ``damages``: bodies that could not be read, and are not in the archive.
    - ``restorable``: whether there is a base to begin at; not where the archive failed.
    - ``seconds``: since it began.
    - ``error``: the trouble that it is in; None: there is none.
    """

    bases: int
    parts: int
    sent_bytes: int
    journal_bytes: int
    lag_bytes: int
    lag_seconds: float
    restarts: int
    damages: int
    restorable: bool
    seconds: float
    error: str | None

    def to_dict(self) -> dict[str, Any]:
        """The same as a plain dict."""
        return asdict(self)


@dataclass(frozen=True)
class _Failed:
    """An archive that ended with an error."""

    report: Archived
    durable: int
    """LSN up to which the journal was, then."""
    since: float
    """When all that was durable could be restored for the last time: by the monotonic clock."""

    def now(self, store: Store) -> Archived:
        """What is durable and not archived grows."""
        try:
            grown = max(0, store._durable_lsn() - self.durable)
        except Error:  # it is closed
            grown = 0
        return replace(
            self.report,
            lag_bytes=self.report.lag_bytes + grown,
            lag_seconds=round(time.monotonic() - self.since, 3),
        )


@contextlib.contextmanager
def known_to(store: Store, report: Callable[[], Archived]) -> Iterator[None]:
    """The store is archived until the end, and any thread may ask for the report.  Where it ends
    with an error that stays known, until the next one begins.  FileExistsError: it is archived
    already."""
    with _lock:
        if store in _known:
            raise FileExistsError(f"{store.directory} is archived already")
        _known[store] = report
    failed = None
    try:
        yield
    except Exception as error:
        failed = _failed(store, report(), error)
        raise
    finally:
        with _lock:
            del _known[store]
            if failed is None:
                _ended.pop(store, None)
            else:
                _ended[store] = failed


def _failed(store: Store, report: Archived, error: Exception) -> _Failed:
    try:
        durable = store._durable_lsn()
    except Error:  # it is closed
        durable = 0
    told = replace(report, restorable=False, error=str(error) or repr(error))
    return _Failed(told, durable, time.monotonic() - report.lag_seconds)


def behind_since(store: Store) -> float:
    """When all that was durable could be restored for the last time, by the monotonic clock: of an
    archive that begins."""
    with _lock:
        failed = _ended.get(store)
    return time.monotonic() if failed is None else failed.since


def archive_of(store: Store) -> Archived | None:
    """What the archive of a store tells, or told when it failed; None: it has none."""
    with _lock:
        report, failed = _known.get(store), _ended.get(store)
    if report is not None:
        return report()
    return None if failed is None else failed.now(store)

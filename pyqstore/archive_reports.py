"""What an archive tells of its work, for who looks at its store."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from .store import Store

__all__ = ["Archived", "archive_of", "known_to"]

_lock = threading.Lock()
_known: WeakKeyDictionary[Store, Callable[[], Archived]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Archived:
    """What was archived since it began, and what was not yet.

    - ``bases``, ``parts``: objects that the target has; ``sent_bytes``: of them, compressed;
      ``journal_bytes``: of the journal in them.
    - ``lag_bytes``: of the journal, durable in the store and not in the target.
    - ``lag_seconds``: for how long the oldest of them has been durable; 0: there is none.
    - ``restarts``: how often the parts had to begin anew with a base, because the target took too
      long or the disk was full.
    - ``damages``: bodies that could not be read, and are not in the archive.
    - ``restorable``: whether there is a base to begin at.
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


@contextlib.contextmanager
def known_to(store: Store, report: Callable[[], Archived]) -> Iterator[None]:
    """The store is archived until the end, and any thread may ask for the report.
    FileExistsError: it is archived already."""
    with _lock:
        if store in _known:
            raise FileExistsError(f"{store.directory} is archived already")
        _known[store] = report
    try:
        yield
    finally:
        with _lock:
            del _known[store]


def archive_of(store: Store) -> Archived | None:
    """What the archive of a store tells; None: it has none."""
    with _lock:
        report = _known.get(store)
    return None if report is None else report()

"""The archive of a served store."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

from ..errors import Error
from ..store import Store

__all__ = ["archived"]

_log = logging.getLogger("pyqstore")
_AGAIN_S = 10.0  # after the target could not be reached
_END_S = 15.0
_FIRST_S = 3.0  # errors in this time prevent the server's start


@contextlib.contextmanager
def archived(store: Store, place: str | None, keep_days: float | None) -> Iterator[None]:
    """Archives the store to the target ``place`` during the block; at the end, everything that is
    durable is still sent.  An unreachable target is tried again.  ValueError, FileExistsError: no
    archive is possible there; such an error that is found later is logged."""
    if place is None:
        yield
        return
    work = _Archiving(store, place, keep_days)
    try:
        yield
    finally:
        with contextlib.suppress(Error):
            store.sync()
        work.end()


class _Archiving:
    def __init__(self, store: Store, place: str, keep_days: float | None) -> None:
        from ..archives import Choices
        from ..backups import Target

        self._store = store
        self._target = Target(place, create=True)
        self._choices = Choices(keep_days=keep_days)
        self._stop = threading.Event()
        self._is_known = threading.Event()
        """Set when the first archive has succeeded or failed."""
        self._lock = threading.Lock()
        self._is_waited_for = True
        self._refused: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="pyqstore-archiving", daemon=True)
        self._thread.start()
        self._is_known.wait(_FIRST_S)
        with self._lock:
            self._is_waited_for = False
        if self._refused is not None:
            raise self._refused

    def end(self) -> None:
        """Sends everything that is durable, as far as time permits."""
        self._stop.set()
        self._thread.join(_END_S)

    def _run(self) -> None:
        from ..archives import archive

        while not self._stop.is_set():
            try:
                archive(
                    self._store,
                    self._target,
                    self._stop,
                    self._choices,
                    lambda _report: self._is_known.set(),
                )
            except (ValueError, FileExistsError) as error:
                self._refuse(error)
                return
            except OSError as error:
                _log.warning("archive: it is tried again: %s", error)
                self._is_known.set()
                self._stop.wait(_AGAIN_S)
            except Error as error:  # the store is ending
                self._refuse(error)
                return
            except Exception as error:
                _log.exception("archive: it is tried again: %s", error)
                self._is_known.set()
                self._stop.wait(_AGAIN_S)

    def _refuse(self, error: Exception) -> None:
        """Raises the error in the starting thread, or logs it later; ``archive_of`` the store has
        it, too."""
        with self._lock:
            self._refused = error
            is_waited_for = self._is_waited_for and not self._is_known.is_set()
        if not is_waited_for:
            _log.error("archive: it has ended: %s", error)
        self._is_known.set()

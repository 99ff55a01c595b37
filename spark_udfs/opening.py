"""Opening a store from Spark's processes: for a job's writing, or with others for reading; or
asking the process that has it open."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .options import OptionError

if TYPE_CHECKING:
    import pyqstore
    from pyqstore.flight.asked import Asked

_LOOK_S = (0.01, 0.25)  # between looks whether the store is free: at first, and at most
# What each of the next readers replays at most.
JOURNAL_BYTES_KEPT = 16 << 20
# It is closed again in a moment: others wait for it, and ask nothing of it.
_FOR_A_MOMENT: dict[str, Any] = {
    "checkpoint_bytes": 0,
    "checkpoint_interval": 0,
    "control": False,
}


class StoreBusyError(RuntimeError):
    """Another process has the store.  ``pid`` is its number, 0 when the store does not say."""

    def __init__(self, text: str, pid: int = 0) -> None:
        super().__init__(text)
        self.pid = pid


def open_store(
    path: str,
    *,
    wait_s: float,
    create: bool = False,
    read_only: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> pyqstore.Store:
    """Open the store at path, waiting wait_s for another process; make it only when asked to.

    It looks again after 10 ms, and after twice as long each time, up to 250 ms.  Each wait is
    shorter by chance, so that tasks which found it locked at once do not come back at once.

    With ``read_only`` no file is written, and any number of processes may have it open so.
    ``settings``: more options of ``pyqstore.open``.

    Raises:
        StoreBusyError: naming the process that has it.
        OptionError: there is no store.
        pyqstore.StoreError: it cannot be opened for another reason.
    """
    store = _opened(path, wait_s, create, read_only, settings or {}, lambda: None)
    assert store is not None
    return store


def _opened(
    path: str,
    wait_s: float,
    create: bool,
    read_only: bool,
    settings: Mapping[str, Any],
    is_enough: Callable[[], object],
) -> pyqstore.Store | None:
    """As ``open_store``; None: the store is locked, and ``is_enough`` says that this will do."""
    import pyqstore

    deadline = time.monotonic() + wait_s
    look_s = _LOOK_S[0]
    while True:
        try:
            return pyqstore.open(path, create=create, read_only=read_only, **settings)
        except pyqstore.StoreNotFound as error:
            hint = "" if create or read_only else "; the option create=true makes one"
            raise OptionError(f"option 'path' is '{path}': {error}{hint}") from error
        except pyqstore.StoreLocked as error:
            if is_enough():
                return None
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise busy(path, wait_s, error, read_only=read_only) from error
        time.sleep(min(left_s, look_s * random.uniform(0.5, 1.0)))
        look_s = min(2 * look_s, _LOOK_S[1])


@contextmanager
def asking(
    path: str, *, wait_s: float, read_only: bool = True, settings: Mapping[str, Any] | None = None
) -> Iterator[Asked]:
    """The store, to be asked: through the process that has it open, if that listens for tools; else
    it is opened, to read or as by ``changing``, for the block.  Raises as ``open_store``."""
    from pyqstore.flight.asked import Here, owner_of

    found: list[Asked] = []

    def has_owner() -> bool:
        owner = owner_of(path)
        if owner is not None:
            found.append(owner)
        return owner is not None

    own = {**_FOR_A_MOMENT, **(settings or {})} if not read_only else {}
    store = _opened(path, wait_s, False, read_only, own, has_owner)
    if store is None:
        yield found[0]
        return
    with store:
        yield Here(store)
        if not read_only:
            _shorten(store)


def busy(
    path: str, waited_s: float, error: pyqstore.StoreLocked, *, read_only: bool = False
) -> StoreBusyError:
    """The exception for a store that was locked all the while."""
    pid = int(error.pid or 0)
    return StoreBusyError(
        f"the store {path} is locked, and was for {waited_s:g} s: {_advice(pid, read_only)}", pid
    )


@contextmanager
def changing(
    path: str, *, wait_s: float, create: bool = False, settings: Mapping[str, Any] | None = None
) -> Iterator[pyqstore.Store]:
    """The store, open as by ``open_store`` for the few changes of a block.

    It is closed without a checkpoint as long as the journal is short: a checkpoint tells of the
    whole store, and what changed is in the journal.
    """
    own = {**_FOR_A_MOMENT, **(settings or {})}
    with open_store(path, wait_s=wait_s, create=create, settings=own) as store:
        yield store
        _shorten(store)


def _shorten(store: pyqstore.Store) -> None:
    stats = store.stats()
    if stats.appended_lsn - stats.checkpoint_lsn >= JOURNAL_BYTES_KEPT:
        store.checkpoint()


def _advice(pid: int, read_only: bool) -> str:
    """Which process has the store, and what to do about it."""
    command = _command(pid)
    process = f"process {pid}" if pid else "another process"
    if "-m pyspark." in command:
        return (
            f"another Spark job ({process}) is reading or committing there. Wait for it, or give "
            f"this job a longer lock_timeout"
        )
    name = f"{process} ({command})" if command else process
    if read_only:
        return f"{name} has it open. Close it there first, or give this job a longer lock_timeout"
    return (
        f"{name} has it open. Close it there first, or publish from that process with "
        f"spark_udfs.publish(df, channel)"
    )


def _command(pid: int) -> str:
    """The command line of a process, "" where the system does not tell."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(400).decode("utf-8", "replace").replace("\0", " ").strip()
    except OSError:
        return ""


_Step = TypeVar("_Step", bound=Callable[..., Any])


def patient(step: _Step) -> _Step:
    """A planning step of a reader, which may be repeated: it is, for ``lock_timeout`` seconds, when
    the process that had the store open ends meanwhile."""

    @wraps(step)
    def run(self: Any, *arguments: Any) -> Any:
        import pyqstore

        deadline = time.monotonic() + self.options.lock_timeout
        while True:
            try:
                return step(self, *arguments)
            except (pyqstore.StoreClosed, pyqstore.ConnectionLost):
                if hasattr(self, "remote") or time.monotonic() >= deadline:
                    raise
            time.sleep(_LOOK_S[0])

    return cast("_Step", run)

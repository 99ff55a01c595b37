"""Shares a store within a process and with other processes.

The first process that opens the store owns it and listens for AMQP on a free port of 127.0.0.1,
with a random password.  It writes both to ``compat.json`` in the store's directory, which only its
user can read.  The other processes connect to that address.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..closing import Closing
from ..errors import StoreLocked
from ..listening import Listener
from ..store import Store, open  # noqa: A004 - the one shadowing that is meant

__all__ = ["Address", "Attachment", "attach", "default_path", "share"]

_log = logging.getLogger("pyqstore")
_MEMORY = ":memory:"
_NAME = "compat.json"
_USER = "pyqstore"
_LOOK_S = 0.02


@dataclass(frozen=True)
class Address:
    """The address at which the owner of a store listens for AMQP 0-9-1, and its credentials."""

    host: str
    port: int
    user: str
    password: str
    pid: int
    """The owner's process id."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.host}:{self.port}>"


def default_path() -> str:
    """The directory of a store that was not named: ``PYQSTORE_PATH``, else ``pyqstore/default`` in
    the user's data directory (``XDG_DATA_HOME``, ``~/.local/share``)."""
    named = os.environ.get("PYQSTORE_PATH")
    if named:
        return named
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(data, "pyqstore", "default")


class _Owned:
    """A store that is open in this process; ``users`` counts its attachments."""

    def __init__(self, key: str, store: Store, is_ours: bool) -> None:
        self.key = key
        self.store = store
        self.is_ours = is_ours
        self.users = 0
        self.listener: Listener | None = None
        self.address: Address | None = None
        self._file = None if key == _MEMORY else os.path.join(key, _NAME)
        try:
            self._listen()
        except OSError as error:
            _log.warning("%s: other processes cannot come in: %s", key, error)

    def _listen(self) -> None:
        password = secrets.token_hex(32)
        self.listener = self.store.listen(
            "127.0.0.1:0", users={_USER: password}, quorum_as_classic=True
        )
        host, _, port = self.listener.address.rpartition(":")
        self.address = Address(host, int(port), _USER, password, os.getpid())
        if self._file is not None:
            _write(self._file, self.address)

    def forget_address(self) -> None:
        """Removes the address, so that no process connects any more."""
        if self._file is not None and self.address is not None:
            with suppress(OSError):
                if _read(self._file, self.address.pid) == self.address:
                    os.unlink(self._file)

    def close(self) -> None:
        self.forget_address()
        if self.listener is not None:
            self.listener.close()
        if self.is_ours:
            self.store.close()


# The mutex is held while a store is opened or closed, which waits for threads of the store.  The
# garbage collector may end a connection in one of them, so finalizers must not wait for the mutex:
# they append to _left, and the holder of the mutex closes those.  The mutex is recursive because a
# signal handler may come here in the thread that holds it.
_mutex = threading.RLock()  # guards _owned and the counts of its values
_depth = 0  # of the holder's recursive calls
_owned: dict[str, _Owned] = {}
_left: deque[_Owned] = deque()


@contextmanager
def _alone() -> Iterator[bool]:
    """Holds the mutex, and releases the stores in _left at the end.  False: an outer call of this
    thread holds it too and may still use a store, so none may be closed."""
    global _depth
    try:
        with _mutex:
            _depth += 1
            try:
                yield _depth == 1
            finally:
                _depth -= 1
    finally:
        _settle()


def _settle() -> None:
    """Releases the stores in _left, unless the mutex is held: its holder does so."""
    global _depth
    while _left and _mutex.acquire(blocking=False):
        try:
            if _depth > 0:
                return
            _depth += 1
            try:
                _let_go(_left.popleft())
            except IndexError:  # another thread took it
                pass
            except Exception:
                _log.exception("a store that nobody uses any more was closed")
            finally:
                _depth -= 1
        finally:
            _mutex.release()


def _let_go(owned: _Owned) -> None:
    owned.users -= 1
    if owned.users == 0:
        if _owned.get(owned.key) is owned:
            del _owned[owned.key]
        owned.close()


class Attachment(Closing):
    """A use of a store.  Closing the last one closes the store, if ``attach`` opened it.

    ``store`` is None if another process owns it.  ``address`` is where the owner listens; None if
    it could not listen.
    """

    store: Store | None
    address: Address | None

    def __init__(self, owned: _Owned | None, address: Address | None) -> None:
        """From :func:`attach` and :func:`share`."""
        self._owned = owned
        self._pid = os.getpid()
        self.store = None if owned is None else owned.store
        self.address = address

    def close(self) -> None:
        """Release the store.  Closing twice is allowed; closing after ``fork()`` does nothing."""
        with _alone() as may_go:
            owned = self._taken()
            if owned is not None and may_go:
                _let_go(owned)
            elif owned is not None:
                _left.append(owned)

    def drop(self) -> None:
        """Release the store like ``close()``, without waiting for other threads: the one that holds
        the mutex completes it."""
        owned = self._taken()
        if owned is not None:
            _left.append(owned)
            _settle()

    def _taken(self) -> _Owned | None:
        owned, self._owned = self._owned, None
        return owned if self._pid == os.getpid() else None

    def __repr__(self) -> str:
        whose = "another process's" if self.store is None else "this process's"
        return f"<{type(self).__name__} {whose} {self.address!r}>"


def attach(path: str | os.PathLike[str], *, timeout: float = 10.0, **options: Any) -> Attachment:
    """Open the store in the directory ``path``, or find the process that has it open.

    Attachments of one process share the store; ``options`` are those of :func:`pyqstore.open` and
    apply if this call opens the store.  Missing parent directories are created.  If another process
    owns the store and has not written its address within ``timeout`` seconds, StoreLocked says what
    to do.  Other errors are those of ``pyqstore.open``.
    """
    key = _key_of(path)
    deadline = time.monotonic() + timeout
    while True:
        with _alone():
            try:
                owned = _owned.get(key)
                if owned is not None and owned.store.closed:  # by the caller of share()
                    del _owned[key]
                    owned = None
                if owned is None:
                    owned = _owned[key] = _open(key, options)
                owned.users += 1
                return Attachment(owned, owned.address)
            except StoreLocked as error:
                locked = error
        address = _read(os.path.join(key, _NAME), locked.pid)
        if address is not None and address.pid != os.getpid():
            return Attachment(None, address)
        if locked.pid == os.getpid() or time.monotonic() > deadline:
            raise _told(key, locked) from locked
        time.sleep(_LOOK_S)


def share(store: Store) -> Attachment:
    """Let :func:`attach`, and so pika's and kombu's API here, use a store that this process
    opened itself, until the attachment or the store is closed::

        with pyqstore.open("orders.qs") as store, compat.share(store):
            connection = pika.BlockingConnection(pika.URLParameters("pyqstore:///abs/orders.qs"))

    ValueError: the store is already shared.
    """
    key = _key_of(store.path)
    with _alone():
        there = _owned.get(key)
        if there is not None and not there.store.closed:
            raise ValueError(f"{key} is shared already")
        owned = _owned[key] = _Owned(key, store, is_ours=False)
        owned.users += 1
        return Attachment(owned, owned.address)


def _open(key: str, options: dict[str, Any]) -> _Owned:
    if key != _MEMORY:
        Path(key).parent.mkdir(parents=True, exist_ok=True)
    store = open(key, **options)
    try:
        return _Owned(key, store, is_ours=True)
    except BaseException:
        store.close()
        raise


def _key_of(path: str | os.PathLike[str]) -> str:
    name = os.fspath(path)
    return name if name == _MEMORY else os.path.realpath(name)


def _told(key: str, locked: StoreLocked) -> StoreLocked:
    if locked.pid == os.getpid():
        how = "this process opened it itself: give the store to pyqstore.compat.share()"
    else:
        owner = "another process" if locked.pid is None else f"process {locked.pid}"
        how = (
            f"{owner} has it open and lets no others in through pyqstore.compat: it can call"
            " pyqstore.compat.share(store); or, if it is 'pyqstore serve', use the client's own"
            " package with amqp:// and the address it listens at"
        )
    error = StoreLocked(f"{key}: {how}")
    error.status, error.path, error.pid = locked.status, locked.path, locked.pid
    return error


def _write(name: str, address: Address) -> None:
    unfinished = f"{name}.{os.getpid()}"
    with suppress(FileNotFoundError):
        os.unlink(unfinished)
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(asdict(address), file)
    os.replace(unfinished, name)


def _read(name: str, pid: int | None) -> Address | None:
    """The address in the file; None if there is none or it was written by another process than
    ``pid``."""
    try:
        with Path(name).open(encoding="utf-8") as file:
            address = Address(**json.load(file))
    except (OSError, ValueError, TypeError):
        return None
    return address if pid in (None, address.pid) else None


def _after_fork() -> None:
    """The parent's stores are not open here; a child connects to its parent."""
    global _depth, _mutex
    _mutex = threading.RLock()
    _depth = 0
    _owned.clear()
    _left.clear()


def _at_exit() -> None:
    with _alone():
        for owned in _owned.values():
            owned.forget_address()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)

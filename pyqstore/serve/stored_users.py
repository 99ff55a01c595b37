"""The users of a store, from its ``users.json``, which may change at any time."""

from __future__ import annotations

import hmac
import logging
import math
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

from .passwords import spend
from .user_file import NAME, read_users
from .user_list import ALL, Permission, User
from .users import Users, Verdict

__all__ = ["StoredUsers", "users_of"]

_log = logging.getLogger("pyqstore")
_VHOST = "/"
_AGAIN_S = 1.0  # before a file that could not be read is tried again
_Identity = tuple[int, ...]


def users_of(path: str | os.PathLike[str], given: Mapping[str, str] | None) -> Users | StoredUsers:
    """The given users, or else those of the store in ``path``.  TypeError, ValueError; OSError: the
    file exists and cannot be read."""
    if given is not None or os.fspath(path) == ":memory:":
        return Users(given)
    return StoredUsers(Path(path))


class StoredUsers:
    """Like ``Users``, from a store's file; without the file only guest exists.  Several threads may
    use it.

    Every call checks the file for changes.  If it has become unreadable, the last readable version
    stays in force, and the error is logged once.
    """

    def __init__(self, directory: Path) -> None:
        """ValueError: the file is broken, or has no users; OSError."""
        self._path = directory / NAME
        self._lock = Lock()
        self._seen: _Identity | None = None
        self._is_new = False
        self._again_at = math.inf
        self._told = ""
        self._table: Users | _Table = Users()
        try:
            self._seen = _identity(self._path)
            users = read_users(self._path)
        except FileNotFoundError:
            return
        if not users:
            raise ValueError(
                f"{self._path} has no users: nobody could come in; add one with 'pyqstore user"
                f" add {directory} NAME', or remove the file, and there is guest"
            )
        self._table = _Table(users)

    @property
    def is_empty(self) -> bool:
        """Whether there is no file, so that only guest exists."""
        return self._current().is_empty

    def __contains__(self, name: str) -> bool:
        return name in self._current()

    def check(self, name: str, password: str) -> bool:
        """Whether this is the user's password.  It takes as long for an unknown user."""
        return self._current().check(name, password)

    def is_proven(self, name: str, password: str) -> bool:
        """Whether ``check`` has accepted this password for the user before; cheap."""
        return self._current().is_proven(name, password)

    def may_do_all(self, name: str) -> bool:
        """Whether nothing is forbidden to the user."""
        return self._current().may_do_all(name)

    def listed(self) -> dict[str, User] | None:
        """All users; None: there is no file, so that only guest exists."""
        table = self._current()
        return table.listed() if isinstance(table, _Table) else None

    def tags(self, name: str) -> tuple[str, ...]:
        """The user's tags for the management API, in RabbitMQ's words, such as "administrator"."""
        return self._current().tags(name)

    def permits(self, user: str, vhost: str, right: str, name: str) -> Verdict:
        """Whether the user has a right of ``RIGHTS`` to an exchange or a queue."""
        return self._current().permits(user, vhost, right, name)

    def may_use(self, user: str, vhost: str) -> bool:
        """Whether the user has permissions in the virtual host."""
        return self._current().may_use(user, vhost)

    def has_changed(self) -> bool:
        """Whether the file was read again since the last call."""
        self._current()
        with self._lock:
            changed = self._is_new
            self._is_new = False
            return changed

    def _current(self) -> Users | _Table:
        try:
            found: _Identity | None = _identity(self._path)
        except FileNotFoundError:
            found = None
        except OSError:
            found = ()
        if found != self._seen or time.monotonic() > self._again_at:
            self._load(found)
        return self._table

    def _load(self, found: _Identity | None) -> None:
        with self._lock:
            if found == self._seen and time.monotonic() <= self._again_at:
                return
            self._seen = found
            self._again_at = math.inf
            try:
                self._table = _Table(read_users(self._path))
            except ValueError as error:
                self._tell(error)
            except (OSError, MemoryError) as error:  # for example without a free descriptor
                self._again_at = time.monotonic() + _AGAIN_S
                self._tell(error)
            else:
                self._is_new = True
                self._told = ""
                _log.info("users: read %s", self._path)

    def _tell(self, error: Exception) -> None:
        if self._told != str(error):
            self._told = str(error)
            _log.error("users: what was read before stays in force: %s", error)


class _Table:
    """The users of one version of the file."""

    is_empty = False

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users = users
        self._key = os.urandom(32)
        # Accepted passwords, for quick checks of frequent logins.
        self._proven: dict[str, bytes] = {}
        self._patterns: dict[str, re.Pattern[bytes]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._users

    def check(self, name: str, password: str) -> bool:
        user = self._users.get(name)
        if user is None or user.secret is None:
            spend(password)
            return False
        if self.is_proven(name, password):
            return True
        if not user.secret.matches(password):
            return False
        self._proven[name] = self._mark(password)
        return True

    def is_proven(self, name: str, password: str) -> bool:
        return hmac.compare_digest(self._mark(password), self._proven.get(name, b""))

    def _mark(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode("utf-8", "surrogateescape"), "sha256")

    def may_do_all(self, name: str) -> bool:
        user = self._users.get(name)
        return user is not None and user.permissions.get(_VHOST) == Permission(ALL, ALL, ALL)

    def listed(self) -> dict[str, User]:
        return dict(self._users)

    def tags(self, name: str) -> tuple[str, ...]:
        user = self._users.get(name)
        return () if user is None else user.tags

    def may_use(self, user: str, vhost: str) -> bool:
        known = self._users.get(user)
        return known is not None and vhost in known.permissions

    def permits(self, user: str, vhost: str, right: str, name: str) -> Verdict:
        if not self.may_use(user, vhost):
            return Verdict.NO
        pattern = getattr(self._users[user].permissions[vhost], right)
        if pattern == ALL:
            return Verdict.ALL
        if pattern == "":  # in RabbitMQ it matches no name; in regular expressions it matches all
            return Verdict.NO
        compiled = self._patterns.get(pattern)
        if compiled is None:
            compiled = self._patterns[pattern] = re.compile(pattern.encode())
        found = compiled.search(name.encode("utf-8", "surrogateescape"))
        return Verdict.NO if found is None else Verdict.YES


def _identity(path: Path) -> _Identity:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

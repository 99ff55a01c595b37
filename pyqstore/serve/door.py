"""Checks of logins, for all protocols, and limits for failed ones."""

from __future__ import annotations

import ipaddress
import time
from collections import deque
from collections.abc import Callable
from threading import Lock

from .stored_users import StoredUsers
from .users import Users

__all__ = ["Authenticate", "Certified", "Door"]

Authenticate = Callable[[str, str, str], bool]
"""Whether a user may log in, by name, password and address."""
Certified = Callable[[str, str], bool]
"""Whether a user with a verified certificate may log in, by the certificate's name and the
address."""

_FAILURES = 10
_FAILURES_S = 60.0
_HOSTS = 4096  # addresses whose failures are remembered


class Door:
    """Decides whether a client may log in.  Several threads may use it."""

    def __init__(
        self, users: Users | StoredUsers | Authenticate, certified: Certified | None = None
    ) -> None:
        self._certified = certified
        self.certifies: bool = certified is not None or not callable(users)
        self._asked = users if callable(users) else None
        self.asks: bool = self._asked is not None
        """Whether a function authenticates users, so there is no list of them."""
        self._users = Users() if callable(users) else users
        self.stored: StoredUsers | None = users if isinstance(users, StoredUsers) else None
        self._failures: dict[str, deque[float]] = {}
        self._lock = Lock()  # protects the failures
        self.is_for_this_machine: bool = self._asked is None and self._users.is_empty

    def __call__(self, user: str, password: str | None, peer: str, is_near: bool) -> bool:
        """``password``: None if the name is from a certificate."""
        host = _counted(peer)
        if self._has_failed_often(host):
            return False
        granted = False
        try:
            granted = user != "" and self._is_user(user, password, peer, is_near)
        finally:  # also if the caller's function raises
            if not granted and not is_near:
                self._note_failure(host)
        return granted

    def knows(self, user: str, password: str, peer: str, is_near: bool) -> bool:
        """Whether a login would be accepted, without an expensive check: the password was accepted
        earlier.  A function is not called."""
        if self._asked is not None or user == "" or password == "":
            return False
        if self._has_failed_often(_counted(peer)) or not self._users.is_proven(user, password):
            return False
        return is_near or not self._users.is_empty

    def _is_user(self, user: str, password: str | None, peer: str, is_near: bool) -> bool:
        if password is None:
            return self._is_certified(user, peer, is_near)
        if password == "":  # some directories accept it as an anonymous login
            return False
        if self._asked is not None:
            return bool(self._asked(user, password, peer))
        return self._users.check(user, password) and (is_near or not self._users.is_empty)

    def _is_certified(self, user: str, peer: str, is_near: bool) -> bool:
        """Does not call a function for passwords: many would accept a missing one."""
        if self._certified is not None:
            return bool(self._certified(user, peer))
        known = self._asked is None and user in self._users
        return known and (is_near or not self._users.is_empty)

    def _has_failed_often(self, host: str) -> bool:
        """Whether the address has too many failures, against guessing passwords.  Other programs of
        this machine do not count, since they could lock out its users."""
        with self._lock:
            failures = self._failures.get(host) or deque()
            return len(failures) == _FAILURES and time.monotonic() - failures[0] < _FAILURES_S

    def _note_failure(self, host: str) -> None:
        with self._lock:
            failures = self._failures.pop(host, None) or deque(maxlen=_FAILURES)
            failures.append(time.monotonic())
            self._failures[host] = failures  # the newest are last
            if len(self._failures) > _HOSTS:
                del self._failures[next(iter(self._failures))]


def _counted(peer: str) -> str:
    """The address whose failures count; for IPv6 the network, because a client can use any address
    of it."""
    host = peer.rpartition(":")[0]
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    mapped = address.ipv4_mapped
    return str(ipaddress.ip_network((address, 64), strict=False) if mapped is None else mapped)

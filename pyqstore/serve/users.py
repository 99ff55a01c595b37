"""Users with passwords."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from enum import IntEnum

__all__ = ["GUEST", "Users", "Verdict", "is_loopback"]

GUEST = "guest"


class Verdict(IntEnum):
    """Whether a user may do something; ALL: for every name."""

    NO = 0
    YES = 1
    ALL = 2


class Users:
    """Names and passwords.  Without any there is only ``guest``, with the password ``guest``: the
    server must then accept only loopback addresses."""

    def __init__(self, passwords: Mapping[str, str] | None = None) -> None:
        """ValueError: a name or a password is empty, or the mapping is empty but not None: an empty
        list of users must not let guest in."""
        self.is_empty: bool = passwords is None
        self._digests: dict[str, bytes] = {}
        if passwords is None:
            passwords = {GUEST: GUEST}
        if not isinstance(passwords, Mapping):
            kind = type(passwords).__name__
            raise TypeError(f"users must be a mapping of names to passwords, not {kind}")
        if not passwords:
            raise ValueError("users is empty: nobody could come in; without users there is guest")
        for name, password in passwords.items():
            if not all(isinstance(text, str) for text in (name, password)):
                raise TypeError(f"users: name and password of {name!r} must be str")
            if not name or not password:
                raise ValueError(f"user {name!r}: a user has a name and a password")
            self._digests[name] = _digest(password)

    @classmethod
    def of(cls, pairs: tuple[str, ...]) -> Users:
        """The pairs of the command line.  ValueError: one is not NAME:PASSWORD, or a name occurs
        twice; the text does not repeat the password."""
        passwords: dict[str, str] = {}
        for pair in pairs:
            name, colon, password = pair.partition(":")
            if not (name and colon and password):
                raise ValueError(f"user {name!r}: expected NAME:PASSWORD")
            if name in passwords:
                raise ValueError(f"user {name!r} is there twice")
            passwords[name] = password
        return cls(passwords or None)

    def __contains__(self, name: str) -> bool:
        return name in self._digests

    def may_do_all(self, name: str) -> bool:
        """Whether nothing is forbidden to the user."""
        return name in self

    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(self._digests)

    def tags(self, name: str) -> tuple[str, ...]:
        """The user's tags for the management API, in RabbitMQ's words, such as "administrator"."""
        return ("administrator",) if name in self else ()

    def may_use(self, user: str, _vhost: str) -> bool:
        """Whether the user may use the virtual host."""
        return user in self

    def permits(self, user: str, _vhost: str, _right: str, _name: str) -> Verdict:
        """Whether the user has a right to a name."""
        return Verdict.ALL if user in self else Verdict.NO

    def check(self, name: str, password: str) -> bool:
        """Whether this is the user's password.  It takes as long for an unknown user."""
        known = self._digests.get(name)
        matches = hmac.compare_digest(known or _digest(""), _digest(password))
        return matches and known is not None

    def is_proven(self, name: str, password: str) -> bool:
        """The same; cheap."""
        return self.check(name, password)


def _digest(password: str) -> bytes:
    # For passwords that this process got in the clear: it only hides their lengths.
    return hashlib.sha256(password.encode("utf-8", "surrogateescape")).digest()


def is_loopback(host: str) -> bool:
    """Whether a socket at this address is reached only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False

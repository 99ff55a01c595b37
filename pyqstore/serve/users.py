"""Who may come in."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from enum import IntEnum

__all__ = ["GUEST", "Users", "Verdict", "is_loopback"]

GUEST = "guest"


class Verdict(IntEnum):
    """Whether a user may do something; ALL: with every name."""

    NO = 0
    YES = 1
    ALL = 2


class Users:
    """Names and passwords.  Without any there is ``guest`` alone, with the password ``guest``: what
    listens then must take loopback addresses only."""

    def __init__(self, passwords: Mapping[str, str] | None = None) -> None:
        """ValueError: an empty name or password, or passwords of nobody, which are not none: a list
        of users that came out empty must not let guest in."""
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
        """As the command line has them.  ValueError: no NAME:PASSWORD, or a name that is there
        twice; the password is not repeated."""
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
        """All of them."""
        return tuple(self._digests)

    def tags(self, name: str) -> tuple[str, ...]:
        """What the management API lets the user do: RabbitMQ's words, as "administrator"."""
        return ("administrator",) if name in self else ()

    def may_use(self, user: str, _vhost: str) -> bool:
        """Whether the user may use the virtual host."""
        return user in self

    def permits(self, user: str, _vhost: str, _right: str, _name: str) -> Verdict:
        """Whether the user has a right to a name."""
        return Verdict.ALL if user in self else Verdict.NO

    def check(self, name: str, password: str) -> bool:
        """Whether this is the user's password.  It takes as long for a user that there is not."""
        known = self._digests.get(name)
        matches = hmac.compare_digest(known or _digest(""), _digest(password))
        return matches and known is not None

    def is_proven(self, name: str, password: str) -> bool:
        """The same, at next to no cost."""
        return self.check(name, password)


def _digest(password: str) -> bytes:
    # Of passwords that this process was given in the clear: it hides their lengths, no more.
    return hashlib.sha256(password.encode("utf-8", "surrogateescape")).digest()


def is_loopback(host: str) -> bool:
    """Whether what listens there is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False

"""Checks who may call: users by name and password, by a token that an earlier answer gave them, or
by a fixed token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections.abc import Mapping, Sequence

from pyarrow import flight  # type: ignore[import-untyped, unused-ignore]

from ..serve.stored_users import StoredUsers
from ..serve.tokens import Tokens
from ..serve.users import Users
from .bases import AuthBase, MiddlewareBase, MiddlewareFactoryBase

__all__ = ["Guard", "NoHandshake"]

_log = logging.getLogger("pyqstore")
_TOKEN_S = 24 * 3600
_LOOKS = 2  # at passwords at once: each takes 32 MiB, before anybody has come in
_TURN_S = 5.0  # that a caller waits for one
_NAME_SHOWN = 64


class Guard(MiddlewareFactoryBase):
    """Checks the header ``authorization`` of each call: ``Basic`` or ``Bearer``.

    The answer to ``Basic`` has a token for ``Bearer``, as other clients of Flight expect; it is
    valid for a day, or until the server ends.
    """

    def __init__(self, users: Users | StoredUsers, tokens: Tokens) -> None:
        """Without users and fixed tokens callers need no credentials.  Calls have no permissions of
        their own: a user without all permissions may make none."""
        self._users = users
        self._tokens = tokens
        self._secret = secrets.token_bytes(32)
        self._looks = threading.BoundedSemaphore(_LOOKS)

    def start_call(
        self, info: object, headers: Mapping[str, Sequence[str]]
    ) -> MiddlewareBase | None:
        """FlightUnauthenticatedError: the caller has no valid credentials."""
        given = next(iter(headers.get("authorization", ())), "")
        kind, _, credentials = given.partition(" ")
        if not given and self._is_open:
            return None
        if kind.lower() == "bearer":
            token = credentials.strip()
            if self._tokens.holds(token) or self._holds(token):
                return None
        if kind.lower() == "basic":
            name = self._name_of(credentials.strip())
            if name is not None:
                return _Pass(self._token(name))
        raise flight.FlightUnauthenticatedError(
            "no user of this server's has this name and password, or the token is too old"
            if given
            else "this server asks for a user's name and password, or a token"
        )

    @property
    def _is_open(self) -> bool:
        """Whether guest, and callers without credentials, may call."""
        return self._users.is_empty and self._tokens.is_empty

    def _name_of(self, credentials: str) -> str | None:
        if self._users.is_empty and not self._is_open:
            return None  # guest is for servers that ask nobody
        try:
            text = base64.b64decode(credentials, validate=True).decode()
        except ValueError:
            return None
        name, _, password = text.partition(":")
        if self._has_password(name, password) and self._users.may_do_all(name):
            return name
        # pyarrow tells no address here, so failures of one cannot be counted.
        _log.warning("Flight: a login as %r was refused", name[:_NAME_SHOWN])
        return None

    def _has_password(self, name: str, password: str) -> bool:
        """FlightUnavailableError: too many logins at once.  A user whose password was right before
        does not wait behind callers that try passwords."""
        if self._users.is_proven(name, password):
            return True
        if not self._looks.acquire(timeout=_TURN_S):
            raise flight.FlightUnavailableError("too many log in at once; try again")
        try:
            return self._users.check(name, password)
        finally:
            self._looks.release()

    # A token is NAME.END.MAC, the name in base64: nothing has to be remembered.

    def _token(self, name: str) -> str:
        end = int(time.time()) + _TOKEN_S
        told = f"{base64.urlsafe_b64encode(name.encode()).decode()}.{end}"
        return f"{told}.{self._mac(told)}"

    def _holds(self, token: str) -> bool:
        told, _, mac = token.rpartition(".")
        name, _, end = told.partition(".")
        if not hmac.compare_digest(self._mac(told).encode(), mac.encode()):
            return False
        user = base64.urlsafe_b64decode(name).decode()
        return int(end) > time.time() and self._users.may_do_all(user)

    def _mac(self, told: str) -> str:
        return hmac.new(self._secret, told.encode(), hashlib.sha256).hexdigest()


class _Pass(MiddlewareBase):
    """Returns a token to the client."""

    def __init__(self, token: str) -> None:
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        """The headers of the answer."""
        return {"authorization": f"Bearer {self._token}"}


class NoHandshake(AuthBase):
    """Accepts the handshake with which clients ask for a token: the guard checks it."""

    def authenticate(self, outgoing: object, incoming: object) -> None:
        """Do nothing."""

    def is_valid(self, token: object) -> str:
        """Accept any token: the guard identifies callers."""
        return ""

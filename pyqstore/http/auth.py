"""Access over HTTP: a login for each request, and no requests of other sites' pages.

Every request has a name and a password (HTTP Basic).  A browser that knows them adds them to every
request, also to requests of another site's page.  So requests from other sites are refused, by the
headers in which browsers name a request's origin; programs other than browsers do not send these
headers.  The host name in the request is checked because another site can make its own name resolve
to this server (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import socket
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..serve.door import Door
from ..serve.stored_users import StoredUsers
from ..serve.users import Users, is_loopback
from .errors import Forbidden, refusal

__all__ = ["Gate", "Login"]

_REALM = 'Basic realm="RabbitMQ Management", charset="UTF-8"'
_LOGINS = 4  # passwords that are checked at the same time
_WAITING = 64  # logins that are being checked or wait for that
# Before a second refusal; doubled for each further one, up to 2 s, like the broker's.
_DELAY_S = 0.1
_DELAY_MAX_S = 2.0
_HOSTS = 1024
_DEFAULT = "amq.default"  # the default exchange in patterns
_SAFE = ("GET", "HEAD", "OPTIONS")
# RabbitMQ's tags, and the tags that each includes.
_TAGS = {
    "administrator": {"administrator", "monitoring", "policymaker", "management"},
    "monitoring": {"monitoring", "management"},
    "policymaker": {"policymaker", "management"},
    "management": {"management"},
}


@dataclass(frozen=True)
class Login:
    """The user of a request and its rights: ``request.state.login``."""

    name: str
    users: Users | StoredUsers | None
    """None: a function authenticates users, and they have all rights."""

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags given to the user."""
        return ("administrator",) if self.users is None else self.users.tags(self.name)

    def has(self, tag: str) -> bool:
        """Whether the user has the tag, or one that includes it."""
        return any(tag in _TAGS.get(each, ()) for each in self.tags)

    def require(self, tag: str) -> None:
        """Forbidden: the user has neither the tag nor one that includes it."""
        if not self.has(tag):
            raise Forbidden(f"User not authorised: it needs the tag {tag!r}")

    def may_use(self, vhost: str) -> bool:
        """Whether the user has permissions in a virtual host."""
        return self.users is None or self.users.may_use(self.name, vhost)

    def may_see(self, vhost: str) -> bool:
        """Whether lists show the virtual host to the user: those that it may use, and to a monitor
        all."""
        return self.may_use(vhost) or self.has("monitoring")

    def may(self, vhost: str, right: str, name: str) -> bool:
        """Whether the user has a right, "configure", "write" or "read", to a name; "" is the
        default exchange."""
        known = name or _DEFAULT
        return self.users is None or bool(self.users.permits(self.name, vhost, right, known))

    def check(self, vhost: str, right: str, name: str) -> None:
        """Forbidden: the user does not have the right."""
        if not self.may(vhost, right, name):
            known = name or _DEFAULT
            raise Forbidden(
                f"{right} access to {known!r} in vhost {vhost!r} refused for user {self.name!r}"
            )


class Gate:
    """Passes requests to the application if they come from users, and not from other sites'
    pages."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        door: Door,
        users: Users | StoredUsers | None,
        hosts: Collection[str] = (),
    ) -> None:
        """``hosts``: names of the server in requests, besides its addresses, "localhost" and the
        machine's name."""
        self._app = app
        self._door = door
        self._users = users
        self._hosts = {"localhost", socket.gethostname().lower(), *(each.lower() for each in hosts)}
        self._places: CapacityLimiter | None = None  # of the serving event loop
        self._waiting = 0
        self._refused: dict[str, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Called by the ASGI server."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._refusal(scope) or await self._look_at_login(scope)
        await (answer or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_ours(host):
            return refusal(
                403, f"the server is not called {host!r}: use its address, or serve with that host"
            )
        if _is_foreign(scope, headers, host):
            return refusal(403, "the request comes from another site's page")
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name in self._hosts or name.endswith(".localhost") or _is_address(name)

    async def _look_at_login(self, scope: Scope) -> Response | None:
        """Sets the request's login.  Returns None, or the answer that refuses the request."""
        user, password = _credentials(Headers(scope=scope).get("authorization", ""))
        client = scope.get("client")
        peer = f"[{client[0]}]:{client[1]}" if client else "unix:0"
        is_near = client is None or is_loopback(client[0])
        if user is None or password is None:
            granted: bool | None = False
        else:
            granted = await self._enters(user, password, peer, is_near)
        if granted is None:
            answer = refusal(503, "too many logins wait")
            answer.headers["Retry-After"] = "5"
            return answer
        if not granted or user is None:
            if user is not None:
                await self._delay(peer.rpartition(":")[0])
            answer = refusal(401, "Login failed")
            answer.headers["WWW-Authenticate"] = _REALM
            return answer
        login = Login(user, self._users)
        if not login.has("management"):
            return refusal(401, "Not management user")
        self._refused.pop(peer.rpartition(":")[0], None)
        scope.setdefault("state", {})["login"] = login
        return None

    async def _enters(self, user: str, password: str, peer: str, is_near: bool) -> bool | None:
        """Checks a password.  Hashing takes a tenth of a second and 32 MiB, so a few passwords are
        hashed at a time, in threads of their own, independent of waiting API calls.  A password
        that was right before is accepted without waiting.  None: too many logins wait."""
        if self._door.knows(user, password, peer, is_near):
            return True
        if self._waiting >= _WAITING:
            return None
        if self._places is None:
            self._places = CapacityLimiter(_LOGINS)
        self._waiting += 1
        try:
            return await run_sync(self._door, user, password, peer, is_near, limiter=self._places)
        finally:
            self._waiting -= 1

    async def _delay(self, host: str) -> None:
        """Delays the answer to a failed login, except the first."""
        failed = self._refused.pop(host, 0)
        self._refused[host] = failed + 1
        if len(self._refused) > _HOSTS:
            del self._refused[next(iter(self._refused))]
        if failed:
            await asyncio.sleep(min(_DELAY_S * 2 ** min(failed - 1, 10), _DELAY_MAX_S))


def _credentials(header: str) -> tuple[str | None, str | None]:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None, None
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None, None
    user, colon, password = decoded.partition(":")
    return (user, password) if colon else (None, None)


def _is_foreign(scope: Scope, headers: Headers, host: str) -> bool:
    """Whether a browser says that another site's page makes the request.  A link to the page is
    allowed: the reader of the other page follows it, and it changes nothing."""
    site = headers.get("sec-fetch-site", "none")
    if site not in ("same-origin", "none"):
        is_link = headers.get("sec-fetch-mode") == "navigate" and scope["method"] in _SAFE
        if not is_link or scope["path"].startswith("/api/"):
            return True
    origin = headers.get("origin")
    if origin is None:
        return False
    return origin.partition("://")[2].lower() != host.lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True

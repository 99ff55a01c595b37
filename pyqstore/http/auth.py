"""Who may ask over HTTP: a login for each request, and no other site's pages.

Every request brings name and password (HTTP Basic).  A browser that has them adds them by itself,
also to requests that another site's page makes.  So requests that come from other sites are
refused, by what browsers say of a request's origin; programs that are no browser say nothing.  The
name by which the server was called is looked at because another site can have its own name lead
here (DNS rebinding).
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
_LOGINS = 4  # passwords that are looked at at once
_WAITING = 64  # logins whose passwords are looked at, or wait for that
_DELAY_S = 0.1  # before a second refusal; then twice as long for each, up to 2 s, as the broker's
_DELAY_MAX_S = 2.0
_HOSTS = 1024
_DEFAULT = "amq.default"  # by which patterns know the exchange without a name
_SAFE = ("GET", "HEAD", "OPTIONS")
# Of RabbitMQ: each tag, and what it includes.
_TAGS = {
    "administrator": {"administrator", "monitoring", "policymaker", "management"},
    "monitoring": {"monitoring", "management"},
    "policymaker": {"policymaker", "management"},
    "management": {"management"},
}


@dataclass(frozen=True)
class Login:
    """Who makes a request, and what it may do: ``request.state.login``."""

    name: str
    users: Users | StoredUsers | None
    """None: a function lets users in, and they may do everything."""

    @property
    def tags(self) -> tuple[str, ...]:
        """As they were given to the user."""
        return ("administrator",) if self.users is None else self.users.tags(self.name)

    def has(self, tag: str) -> bool:
        """Whether the user has a tag, or one that includes it."""
        return any(tag in _TAGS.get(each, ()) for each in self.tags)

    def require(self, tag: str) -> None:
        """Forbidden: the user has neither the tag nor one that includes it."""
        if not self.has(tag):
            raise Forbidden(f"User not authorised: it needs the tag {tag!r}")

    def may_use(self, vhost: str) -> bool:
        """Whether the user has permissions in a virtual host."""
        return self.users is None or self.users.may_use(self.name, vhost)

    def may_see(self, vhost: str) -> bool:
        """Whether lists show the virtual host to the user: its own, and to a monitor all."""
        return self.may_use(vhost) or self.has("monitoring")

    def may(self, vhost: str, right: str, name: str) -> bool:
        """Whether the user has a right, "configure", "write" or "read", to a name; "" is the
        exchange without one."""
        known = name or _DEFAULT
        return self.users is None or bool(self.users.permits(self.name, vhost, right, known))

    def check(self, vhost: str, right: str, name: str) -> None:
        """Forbidden: it has not."""
        if not self.may(vhost, right, name):
            known = name or _DEFAULT
            raise Forbidden(
                f"{right} access to {known!r} in vhost {vhost!r} refused for user {self.name!r}"
            )


class Gate:
    """Lets requests through to an application that come from users, and from no other site."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        door: Door,
        users: Users | StoredUsers | None,
        hosts: Collection[str] = (),
    ) -> None:
        """``hosts``: names by which the server is called, beside its addresses, "localhost" and
        the machine's."""
        self._app = app
        self._door = door
        self._users = users
        self._hosts = {"localhost", socket.gethostname().lower(), *(each.lower() for each in hosts)}
        self._places: CapacityLimiter | None = None  # of the loop that serves
        self._waiting = 0
        self._refused: dict[str, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI's."""
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
        """None: the user may come in, and the request has it; else the answer."""
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
        """Hashing takes a tenth of a second and 32 MiB: a few at a time, in threads of their own,
        however many calls of the API wait.  Whose password was right before does not wait for
        others'.  None: too many wait."""
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
        """The first failure is told at once."""
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
    """Whether a browser says that another site's page makes the request.  A link that leads to the
    page is none: it is followed by whoever reads the other page, and changes nothing."""
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

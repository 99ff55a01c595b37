"""Who asks for what: the store, the rights, and the token that actions bring.

The server's gate has let the request in: it knows the user, and refuses requests that pages of
other sites make.  The token is a second proof of the same: the page reads it and sends it with each
action, and another site's page cannot read it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ... import store as _store
from ...errors import ChannelError, Error, StoreClosed, StoreFailed, StoreFull
from ..auth import Login
from ..context import Context
from ..errors import NESTED, BadRequest, Forbidden
from .assets import HEADERS
from .feed import Feed

__all__ = ["Asking", "Handler", "Trouble", "answer"]

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class Trouble(Exception):
    """What was asked for cannot be done, and why, for people."""

    def __init__(self, text: str, status: int = 400) -> None:
        """``status``: of HTTP."""
        super().__init__(text)
        self.status = status


def answer(what: object, status: int = 200) -> Response:
    """As JSON in ASCII: a name that is no UTF-8 gets through, too."""
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return Response(json.dumps(what), status, headers, "application/json")


class Asking:
    """What all parts of the page share."""

    def __init__(self, context: Context) -> None:
        """``context``: of the server."""
        self.context = context
        self.feed: Feed = Feed(context)
        self._secret = secrets.token_bytes(32)

    def routes(self) -> list[Route]:
        """Who is asking."""
        return [Route("/page/session", self.told(self._session), methods=["GET"])]

    async def _session(self, request: Request) -> Response:
        login = self.login(request)
        return answer(
            {
                "user": login.name,
                "token": self._token(login.name),
                "vhosts": [name for name in self.context.stores() if login.may_use(name)],
                "version": version("pyqstore"),
            }
        )

    def login(self, request: Request) -> Login:
        """The user, whom the gate has let in."""
        login = request.state.login
        assert isinstance(login, Login)
        return login

    def store(self, request: Request, vhost: str) -> _store.Store:
        """The store of a virtual host.  Trouble: there is none, or not for this user."""
        store = self.context.stores().get(vhost)
        if store is None or not self.login(request).may_use(vhost):
            raise Trouble(f"There is no virtual host {vhost!r} for you.", 404)
        return store

    def check_token(self, request: Request) -> None:
        """Trouble: the request does not come from the page."""
        given = request.headers.get("x-page-token", "").encode("latin-1", "replace")
        if not hmac.compare_digest(given, self._token(self.login(request).name).encode()):
            raise Trouble("The page is older than the server: reload it.", 403)

    def told(self, handler: Handler) -> Handler:
        """``handler``, whose errors become answers with a text for people."""

        async def told(request: Request) -> Response:
            try:
                return await handler(request)
            except Trouble as error:
                return answer({"error": str(error)}, error.status)
            except Forbidden as error:
                return answer({"error": str(error)}, 403)
            except RecursionError:
                return answer({"error": NESTED}, 400)
            except (BadRequest, Error, ValueError, TypeError, OverflowError) as error:
                return answer({"error": str(error)}, _status_of(error))

        return told

    def _token(self, user: str) -> str:
        name = user.encode("utf-8", "surrogateescape")
        return hmac.new(self._secret, name, hashlib.sha256).hexdigest()


def _status_of(error: Exception) -> int:
    if isinstance(error, ChannelError):
        return error.reply_code if error.reply_code in (403, 404) else 409
    if isinstance(error, StoreClosed | StoreFailed | StoreFull):
        return 503
    return 500 if isinstance(error, Error) else 400

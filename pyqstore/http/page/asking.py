"""Requests of the page: the store, the rights, and the token of actions.

The server's login check has passed the request: the user is known, and requests of other sites'
pages were refused.  The token is a second check of the same: the page reads it and sends it with
each action, and another site's page cannot read it.
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
    """The request is impossible, and why, for people."""

    def __init__(self, text: str, status: int = 400) -> None:
        """``status``: the HTTP status."""
        super().__init__(text)
        self.status = status


def answer(what: object, status: int = 200) -> Response:
    """A value as JSON in ASCII, so that names that are not UTF-8 can be sent, too."""
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return Response(json.dumps(what), status, headers, "application/json")


class Asking:
    """State and checks shared by all parts of the page."""

    def __init__(self, context: Context) -> None:
        """``context``: the server's."""
        self.context = context
        self.feed: Feed = Feed(context)
        self._secret = secrets.token_bytes(32)

    def routes(self) -> list[Route]:
        """The route that returns the user and the token."""
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
        """The user of the request."""
        login = request.state.login
        assert isinstance(login, Login)
        return login

    def store(self, request: Request, vhost: str) -> _store.Store:
        """The store of a virtual host.  Trouble: there is none, or the user may not see it."""
        store = self.context.stores().get(vhost)
        if store is None or not self.login(request).may_use(vhost):
            raise Trouble(f"There is no virtual host {vhost!r} for you.", 404)
        return store

    def check_token(self, request: Request) -> None:
        """Trouble: the request does not have the page's token."""
        given = request.headers.get("x-page-token", "").encode("latin-1", "replace")
        if not hmac.compare_digest(given, self._token(self.login(request).name).encode()):
            raise Trouble("The page is older than the server: reload it.", 403)

    def told(self, handler: Handler) -> Handler:
        """Wraps ``handler``: its errors become answers with a text for people."""

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

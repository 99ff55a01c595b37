"""A request of the management API, and its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ... import store as _store
from ...channel import Channel
from ...errors import StoreClosed, StoreFailed
from ..auth import Login
from ..context import Context
from ..errors import BadRequest, Forbidden, Missing
from ..given import loads

__all__ = [
    *("Call", "Handler", "Json", "created", "done", "is_confirmed", "plain"),
    *("render", "resource"),
]

_CONFIRM_S = 30.0


class Json(Response):
    """JSON in ASCII: a name that is not UTF-8 appears as escapes of its bytes."""

    media_type = "application/json"

    def __init__(self, content: object, status: int = 200) -> None:
        """``content``: a value that ``json`` accepts."""
        self._content = content
        super().__init__(status_code=status, headers={"Cache-Control": "no-cache"})

    def render(self, _content: object) -> bytes:
        """Called by Starlette."""
        return render(self._content)


def render(content: object) -> bytes:
    """A value as JSON, in the form of answers."""
    return json.dumps(content, separators=(",", ":")).encode("ascii")


@dataclass(frozen=True)
class Call:
    """A request and its user."""

    context: Context
    request: Request
    data: bytes
    """The request's body."""

    @property
    def login(self) -> Login:
        """The user of the request."""
        login: Login = self.request.state.login
        return login

    @property
    def query(self) -> Mapping[str, str]:
        """The query parameters."""
        return self.request.query_params

    def name(self, part: str) -> str:
        """A name in the path: ``queue`` of /queues/{vhost}/{queue}.  Missing: it is not UTF-8."""
        try:
            return unquote(self.request.path_params[part], errors="strict")
        except UnicodeDecodeError:
            raise Missing from None

    @cached_property
    def vhost(self) -> str:
        """The virtual host in the path.  Missing: there is none; Forbidden: the user may not enter
        it."""
        name = self.name("vhost")
        if name not in self.context.stores():
            raise Missing
        if not self.login.may_see(name):
            raise Forbidden("User not authorised to access virtual host")
        return name

    @cached_property
    def store(self) -> _store.Store:
        """The store of the path, also for users who may only look."""
        store = self.context.stores().get(self.vhost)
        if store is None:  # deleted meanwhile
            raise Missing
        return store

    def acting(self, *rights: tuple[str, str]) -> _store.Store:
        """The store, for a user with these ``rights``: pairs of a right and a name, as ("write",
        "orders").  Forbidden."""
        store = self.store
        if not self.login.may_use(self.vhost):
            raise Forbidden("User not authorised to access virtual host")
        for right, name in rights:
            self.login.check(self.vhost, right, name)
        return store

    def seen(self) -> dict[str, _store.Store]:
        """The stores that the user may see: the one in the path, or all."""
        if "vhost" in self.request.path_params:
            return {self.vhost: self.store}
        stores = self.context.stores()
        return {name: store for name, store in stores.items() if self.login.may_see(name)}

    def body(self, *required: str) -> dict[str, Any]:
        """The body, an object.  BadRequest: it is none, or a required key is missing."""
        try:
            found = loads(self.data or b"{}")
        except (ValueError, RecursionError):
            raise BadRequest("not_json") from None
        if not isinstance(found, dict):
            raise BadRequest("not_json: expected an object")
        missing = [f"{{key_missing,{key}}}" for key in required if key not in found]
        if missing:
            raise BadRequest(f"[{','.join(missing)}]")
        return found


Handler = Callable[[Call], Any]
"""Returns a response, or a value that is sent as JSON.  It runs in a thread, and may block."""


def resource(path: str, context: Context, **handlers: Handler) -> Route:
    """A path of the API; ``handlers`` by method: GET=..., PUT=..., DELETE=..., POST=..."""

    def answered(call: Call, method: str) -> Response:
        found = _read(call, handlers[method]) if method == "GET" else handlers[method](call)
        if method != "GET":
            context.sampler.forget_newest()
        return found if isinstance(found, Response) else Json(found)

    async def answer(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        call = Call(context, request, await request.body())
        return await run_in_threadpool(answered, call, method)

    return Route(f"/api/{path}", answer, methods=list(handlers))


def _read(call: Call, handler: Handler) -> Any:
    """Calls the handler and returns its result.  If a virtual host was deleted during the call,
    calls it again, for the remaining ones."""
    while True:
        vhosts = call.context.stores().keys()
        try:
            return handler(call)
        except StoreClosed:
            if vhosts <= call.context.stores().keys():
                raise


def created() -> Response:
    """201: it was created."""
    return Response(status_code=201)


def done() -> Response:
    """204: done, or nothing had to change."""
    return Response(status_code=204)


def is_confirmed(channel: Channel) -> bool:
    """Whether the published messages are accepted, and durable if their queue is; False: a full
    queue refused one.

    HTTPException: unknown yet; StoreFailed."""
    try:
        confirmed = channel.wait_for_confirms(_CONFIRM_S)
    except TimeoutError:
        told = f"the disk has not answered for {_CONFIRM_S:.0f} s:"
        raise HTTPException(503, f"{told} it is not known whether the message is durable") from None
    if isinstance(refusal := channel.refusal, StoreFailed):
        raise refusal
    return confirmed

"""Server-sent events: a stream for each viewer, with the data of its view."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ...errors import Error
from .asking import Asking, Trouble
from .assets import HEADERS
from .views import VIEWS, Look

__all__ = ["routes"]

_RETRY_MS = 2000


def routes(asking: Asking) -> list[Route]:
    """The stream of a view."""

    async def live(request: Request) -> Response:
        query = dict(request.query_params)
        vhost = query.get("vhost", "/")
        asking.store(request, vhost)
        if query.get("view") not in VIEWS:
            raise Trouble(f"There is no view {query.get('view', '')!r}.", 404)
        if asking.feed.is_full:
            raise Trouble("Too many pages are open: close some and reload.", 503)
        headers = {**HEADERS, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        events = _events(asking, request, vhost, query)
        return StreamingResponse(events, headers=headers, media_type="text/event-stream")

    return [Route("/page/live", asking.told(live), methods=["GET"])]


async def _events(
    asking: Asking, request: Request, vhost: str, query: Mapping[str, str]
) -> AsyncIterator[bytes]:
    """Each event is made after the previous one was sent, so a slow reader gets fewer."""
    yield b"retry: %d\n\n" % _RETRY_MS
    last = 0
    with asking.feed.viewer(vhost):
        while not asking.feed.is_ending:
            try:
                told = await _figures(asking, request, vhost, query, last)
                last = told.pop("last", last)
                yield _event("figures", told)
            except (Error, Trouble, KeyError, OSError, ValueError) as error:
                yield _event("trouble", {"error": str(error)})
            await asking.feed.next_turn()


async def _figures(
    asking: Asking, request: Request, vhost: str, query: Mapping[str, str], last: int
) -> dict[str, Any]:
    store = asking.store(request, vhost)  # the user may have lost the right meanwhile
    history = await asking.feed.look(vhost)
    assert history.view is not None
    look = Look(store, asking.login(request), history, history.view, query, last)
    return await to_thread.run_sync(VIEWS[query["view"]], look, limiter=asking.feed.limiter)


def _event(name: str, what: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(what)}\n\n".encode()

"""Messages of a queue for the page; nothing is delivered, and no count changes."""

from __future__ import annotations

import base64
from itertools import islice
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ... import store as _store
from ...errors import StoreCorrupt
from ...message import Message
from ...peeking import peeks
from .asking import Asking, answer
from .views.arguments import text_of

__all__ = ["peeked", "routes"]

_MESSAGES_MAX = 50
_BODY_BYTES = 4096
_POSITION_MAX = 2**64 - 1


def routes(asking: Asking) -> list[Route]:
    """The messages of a queue."""

    async def peek(request: Request) -> Response:
        query = request.query_params
        vhost, queue = query.get("vhost", "/"), query.get("queue", "")
        store = asking.store(request, vhost)
        asking.login(request).check(vhost, "read", queue)
        start = _number("start", query.get("start", "0"), 0, _POSITION_MAX)
        limit = _number("limit", query.get("limit", "10"), 1, _MESSAGES_MAX)
        found = await to_thread.run_sync(
            peeked, store, queue, start, limit, limiter=asking.feed.limiter
        )
        return answer(found)

    return [Route("/page/peek", asking.told(peek), methods=["GET"])]


def _number(name: str, text: str, least: int, most: int) -> int:
    if not text.isdecimal() or len(text) > 20 or not least <= int(text) <= most:
        raise ValueError(f"{name} must be {least} to {most}, not {text[:40]!r}")
    return int(text)


def peeked(store: _store.Store, queue: str, start: int, limit: int) -> dict[str, Any]:
    """At most ``limit`` messages of ``queue`` from the position ``start`` on."""
    damages: list[StoreCorrupt] = []
    found = [
        _told(message, state)
        for message, state in islice(peeks(store, queue, damages.append, start), limit)
    ]
    return {"messages": found, "damages": [str(each) for each in damages]}


def _told(message: Message, state: str) -> dict[str, Any]:
    text, encoding = _shown(message.body[:_BODY_BYTES], len(message.body) > _BODY_BYTES)
    return {
        # As text: a position may exceed JavaScript's integers.
        "position": str(message.delivery_tag),
        "state": state,
        "redelivered": message.redelivered,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "body": text,
        "encoding": encoding,
        "body_bytes": len(message.body),
        "truncated": len(message.body) > _BODY_BYTES,
        "properties": _properties(message),
    }


def _properties(message: Message) -> dict[str, str]:
    told = message.properties.asdict()
    headers = told.pop("headers", {})
    named = {name: text_of(value) for name, value in told.items()}
    return named | {f"header {name}": text_of(value) for name, value in headers.items()}


def _shown(body: bytes, is_cut: bool) -> tuple[str, str]:
    """The body as text if it is text; a cut may divide its last character."""
    for end in range(len(body), max(len(body) - 4, -1) if is_cut else len(body) - 1, -1):
        try:
            return body[:end].decode("utf-8"), "utf-8"
        except UnicodeDecodeError:
            continue
    return base64.b64encode(body).decode(), "base64"

"""A limit for the body of a request."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import refusal

__all__ = ["BODY_BYTES_MAX", "BodyLimit"]

BODY_BYTES_MAX = 20_000_000  # RabbitMQ's limit for definitions, and for a message


class _TooLarge(Exception):
    """For a body without a Content-Length."""


class BodyLimit:
    """Refuses requests whose body is larger than ``BODY_BYTES_MAX``, before it is in memory."""

    def __init__(self, app: ASGIApp) -> None:
        """``app``: receives the other requests."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Called by the ASGI server."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = Headers(scope=scope).get("content-length", "0")
        too_large = refusal(413, f"a body has {BODY_BYTES_MAX} bytes at most", "too_large")
        if told.isdigit() and int(told) > BODY_BYTES_MAX:
            await too_large(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > BODY_BYTES_MAX:
                raise _TooLarge
            return message

        try:
            await self._app(scope, counted, send)
        except _TooLarge:
            await too_large(scope, receive, send)

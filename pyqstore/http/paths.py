"""Paths in clients' form."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["RawPaths"]

_PREFIX = "/api/"


class RawPaths:
    """Matches paths under /api before escapes are decoded: a name may contain a slash, and the
    virtual host "/" is one."""

    def __init__(self, app: ASGIApp) -> None:
        """``app``: matches the paths."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Called by the ASGI server."""
        raw = scope.get("raw_path", b"")
        if scope["type"] == "http" and raw.startswith(_PREFIX.encode()):
            path = raw.decode("ascii", "replace")
            scope = {**scope, "path": path if path == _PREFIX else path.rstrip("/")}
        await self._app(scope, receive, send)

"""Paths as clients write them."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["RawPaths"]

_PREFIX = "/api/"


class RawPaths:
    """Has paths under /api be matched before their escapes are read: a name may have a slash, and
    the virtual host "/" is one."""

    def __init__(self, app: ASGIApp) -> None:
        """``app``: what matches paths."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI's."""
        raw = scope.get("raw_path", b"")
        if scope["type"] == "http" and raw.startswith(_PREFIX.encode()):
            path = raw.decode("ascii", "replace")
            scope = {**scope, "path": path if path == _PREFIX else path.rstrip("/")}
        await self._app(scope, receive, send)

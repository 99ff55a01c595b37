"""The files of the page, and the content security policy for browsers.

With the policy, a browser loads scripts, styles and pictures only from this server, sends requests
only to it, and runs no script inside markup: a name that were mistaken for markup would have no
effect.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import PurePosixPath

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["HEADERS", "routes"]

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOLDERS = ("", "views/")


def routes() -> list[Route]:
    """The page, and each of its files; other files are not served."""
    found = _read()
    index = found.pop("index.html")
    listed = [Route("/", _answering("index.html", index), methods=["GET"])]
    for name, content in sorted(found.items()):
        path = f"/page/static/{name}"
        listed.append(Route(path, _answering(name, content), methods=["GET"]))
    return listed


def _read() -> dict[str, bytes]:
    """All files by their paths."""
    root = files(__package__) / "static"
    found: dict[str, bytes] = {}
    for folder in _FOLDERS:
        for entry in (root / folder if folder else root).iterdir():
            if PurePosixPath(entry.name).suffix in _TYPES:
                found[folder + entry.name] = entry.read_bytes()
    return found


def _answering(name: str, content: bytes) -> Callable[[Request], Awaitable[Response]]:
    """Answers with one file, or with 304 if the browser has the current version."""
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {**HEADERS, "Cache-Control": "no-cache", "ETag": tag}
    media = _TYPES[PurePosixPath(name).suffix]

    async def answered(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media)

    return answered

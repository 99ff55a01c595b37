"""The application: all routes, behind one check of logins."""

from __future__ import annotations

from collections.abc import Collection

from starlette.applications import Starlette
from starlette.middleware import Middleware

from ..serve.door import Door
from . import api, metrics, page
from .auth import Gate
from .context import Context
from .errors import HANDLERS
from .limits import BodyLimit
from .paths import RawPaths

__all__ = ["application"]


def application(context: Context, door: Door, hosts: Collection[str] = ()) -> Starlette:
    """The ASGI application: the management API under /api, /metrics, and the page."""
    users = None if door.asks else context.users
    app = Starlette(
        routes=[*api.routes(context), *metrics.routes(context), *page.routes(context)],
        middleware=[
            Middleware(Gate, door=door, users=users, hosts=hosts),
            Middleware(BodyLimit),
            Middleware(RawPaths),
        ],
        exception_handlers=HANDLERS,
    )
    app.router.redirect_slashes = False
    return app

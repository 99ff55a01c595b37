"""The page that operators look at: its files, its live figures, and what it can do."""

from __future__ import annotations

from starlette.routing import Route

from ..context import Context
from . import actions, assets, live, peeking
from .asking import Asking

__all__ = ["routes"]


def routes(context: Context) -> list[Route]:
    """The page at "/", and under "/page" all that it asks for."""
    asking = Asking(context)
    return [
        *assets.routes(),
        *asking.routes(),
        *live.routes(asking),
        *peeking.routes(asking),
        *actions.routes(asking),
    ]

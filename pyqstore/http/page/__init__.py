"""The operators' page: its files, its live figures, and its actions."""

from __future__ import annotations

from starlette.routing import Route

from ..context import Context
from . import actions, assets, live, peeking
from .asking import Asking

__all__ = ["routes"]


def routes(context: Context) -> list[Route]:
    """The page at "/", and its files and data under "/page"."""
    asking = Asking(context)
    return [
        *assets.routes(),
        *asking.routes(),
        *live.routes(asking),
        *peeking.routes(asking),
        *actions.routes(asking),
    ]

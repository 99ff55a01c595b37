"""RabbitMQ's management API: the parts that tools use."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute

from ..context import Context
from . import (
    bindings,
    clients,
    definitions,
    exchanges,
    health,
    messages,
    overview,
    queues,
    users,
    vhosts,
)

__all__ = ["routes"]

_PARTS = (
    *(overview, vhosts, users, definitions, health),
    *(bindings, messages, clients, exchanges, queues),
)


def routes(context: Context) -> Sequence[BaseRoute]:
    """All routes under /api."""
    return [route for part in _PARTS for route in part.routes(context)]

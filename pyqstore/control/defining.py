"""Operations on all declarations at once, in the form of RabbitMQ's definitions."""

from __future__ import annotations

import json

from ..serve.declared import declared
from ..serve.definitions import declare, parse_definitions
from ..store import Store
from .talk import Talk
from .wire import Report

__all__ = ["define", "definitions"]


def definitions(store: Store, _arguments: Report, _talk: Talk) -> Report:
    """Returns queues, exchanges and bindings."""
    return declared(store)


def define(store: Store, arguments: Report, talk: Talk) -> Report:
    """Declares the definitions of ``vhost`` in the document, which the tool is asked for."""
    _, payload = talk.ask({})
    found = parse_definitions(json.loads(payload), str(arguments["vhost"]))
    return {"unknown": declare(store, found)}

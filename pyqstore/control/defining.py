"""Operations about all that is declared at once, in the words of RabbitMQ's definitions."""

from __future__ import annotations

import json

from ..serve.declared import declared
from ..serve.definitions import declare, parse_definitions
from ..store import Store
from .talk import Talk
from .wire import Report

__all__ = ["define", "definitions"]


def definitions(store: Store, _arguments: Report, _talk: Talk) -> Report:
    """Queues, exchanges and bindings."""
    return declared(store)


def define(store: Store, arguments: Report, talk: Talk) -> Report:
    """Declare what the document has that the tool is asked for: those of ``vhost``."""
    _, payload = talk.ask({})
    found = parse_definitions(json.loads(payload), str(arguments["vhost"]))
    return {"unknown": declare(store, found)}

"""What a user needs beside a right to one name, the same for the API and the page, as by AMQP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..properties import Properties
from .auth import Login
from .errors import BadRequest

__all__ = ["Rights", "check_user_id", "to_declare_exchange", "to_declare_queue"]

Rights = list[tuple[str, str]]
"""Each a right and a name, as ("write", "orders")."""

_NAMED_BY_SERVER = "amq.gen-"  # how a name begins that the engine makes up


def to_declare_queue(name: str, arguments: Mapping[str, Any]) -> Rights:
    """Its messages may go on to the exchange of dead letters, and come from a stream."""
    name = name or _NAMED_BY_SERVER
    rights = [("configure", name), *_passing_on(name, arguments.get("x-dead-letter-exchange"))]
    stream = arguments.get("x-stream-source")
    return [*rights, ("read", stream)] if isinstance(stream, str) else rights


def to_declare_exchange(name: str, arguments: Mapping[str, Any]) -> Rights:
    """What it cannot route goes on to the alternate exchange."""
    return [("configure", name), *_passing_on(name, arguments.get("alternate-exchange"))]


def _passing_on(name: str, other: Any) -> Rights:
    """What is no text is the engine's to refuse."""
    return [("read", name), ("write", other)] if isinstance(other, str) else []


def check_user_id(login: Login, properties: Properties | None) -> None:
    """BadRequest: the message says that somebody else publishes it."""
    claimed = None if properties is None else properties.user_id
    if claimed is not None and claimed != login.name:
        raise BadRequest(
            f"user_id property set to {claimed!r} but authenticated user was {login.name!r}"
        )

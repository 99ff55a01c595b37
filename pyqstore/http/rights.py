"""Rights that a user needs in addition to that to one name; the same for the API, the page and
AMQP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..properties import Properties
from .auth import Login
from .errors import BadRequest

__all__ = ["Rights", "check_user_id", "to_declare_exchange", "to_declare_queue"]

Rights = list[tuple[str, str]]
"""Pairs of a right and a name, such as ("write", "orders")."""

_NAMED_BY_SERVER = "amq.gen-"  # the begin of names that the engine makes up


def to_declare_queue(name: str, arguments: Mapping[str, Any]) -> Rights:
    """Its messages may go to the dead-letter exchange, and come from a stream."""
    name = name or _NAMED_BY_SERVER
    rights = [("configure", name), *_passing_on(name, arguments.get("x-dead-letter-exchange"))]
    stream = arguments.get("x-stream-source")
    return [*rights, ("read", stream)] if isinstance(stream, str) else rights


def to_declare_exchange(name: str, arguments: Mapping[str, Any]) -> Rights:
    """Messages that it cannot route go to the alternate exchange."""
    return [("configure", name), *_passing_on(name, arguments.get("alternate-exchange"))]


def _passing_on(name: str, other: Any) -> Rights:
    """The engine refuses a value that is not text."""
    return [("read", name), ("write", other)] if isinstance(other, str) else []


def check_user_id(login: Login, properties: Properties | None) -> None:
    """BadRequest: the message's user id is another user."""
    claimed = None if properties is None else properties.user_id
    if claimed is not None and claimed != login.name:
        raise BadRequest(
            f"user_id property set to {claimed!r} but authenticated user was {login.name!r}"
        )

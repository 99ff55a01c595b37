"""Queues and topics, and the options in their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .options import parsed_flag, parsed_number, query_of

__all__ = ["Destination", "DestinationOptions", "Groups", "Queue", "Topic"]

_NAME_BYTES_MAX = 255
_WILDCARDS = {"*": "*", ">": "#"}


@dataclass(frozen=True)
class DestinationOptions:
    """The options after the ``?`` of a destination's name; None: the connection's, or none."""

    prefetch: int | None = None
    exclusive: bool = False
    priority: int | None = None
    selector: str | None = None


_NO_OPTIONS = DestinationOptions()


@dataclass(frozen=True)
class Destination:
    """A queue or a topic, from ``Session.queue()`` and ``Session.topic()``."""

    name: str
    options: DestinationOptions = field(default=_NO_OPTIONS, compare=False, repr=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Queue(Destination):
    """Each message goes to one consumer."""


@dataclass(frozen=True)
class Topic(Destination):
    """Each message goes to each subscription that its name fits.

    Words are separated by dots.  To subscribe, ``*`` stands for any word, and ``>`` at the end for
    any number of words.
    """

    @property
    def is_pattern(self) -> bool:
        """Whether it stands for many topics: for subscriptions alone."""
        return any(word in _WILDCARDS for word in self.name.split("."))

    @property
    def binding_key(self) -> str:
        """As the exchange has it: with ``#`` for ``>``."""
        return ".".join(_WILDCARDS.get(word, word) for word in self.name.split("."))


@dataclass(frozen=True)
class Groups(Destination):
    """Queues among which messages are divided by their group, from ``Session.groups()``: messages
    with one ``JMSXGroupID`` are in one queue, which one consumer at a time reads."""

    count: int = 1

    @property
    def queues(self) -> list[Queue]:
        """The queues, to consume from."""
        return [Queue(f"{self.name}.{number}") for number in range(self.count)]


def queue_of(text: str) -> Queue:
    """ValueError: an option is unknown, or no queue can have the name."""
    name, options = _parsed("queue", text)
    return Queue(name, options)


def topic_of(text: str) -> Topic:
    """ValueError: an option is unknown, or no topic can have the name."""
    name, options = _parsed("topic", text)
    words = name.split(".")
    if "#" in words:
        raise ValueError(f"topic {name!r}: '#' means nothing here; '>' is any number of words")
    if ">" in words[:-1]:
        raise ValueError(f"topic {name!r}: '>' stands at the end alone")
    return Topic(name, options)


def _parsed(kind: str, text: str) -> tuple[str, DestinationOptions]:
    if not isinstance(text, str):
        raise TypeError(f"a {kind}'s name must be str, not {type(text).__name__}")
    name, _, query = text.partition("?")
    if not name:
        raise ValueError(f"a {kind}'s name must not be empty")
    if len(name.encode("utf-8", "surrogateescape")) > _NAME_BYTES_MAX or "\0" in name:
        raise ValueError(f"a {kind}'s name has at most 255 bytes, and no NUL character")
    where = f"{kind} {name!r}"
    return name, _options(where, query_of(where, query)) if query else _NO_OPTIONS


def _options(where: str, given: Mapping[str, str]) -> DestinationOptions:
    known = ("prefetchSize", "exclusive", "priority", "selector")
    named = {}
    for name, value in given.items():
        found = re.fullmatch(r"consumer\.(\w+)", name)
        if found is None or found[1] not in known:
            names = ", ".join(f"consumer.{each}" for each in known)
            raise ValueError(f"{where}: there is no option {name!r}; there are {names}")
        named[found[1]] = value
    prefetch = named.get("prefetchSize")
    exclusive = named.get("exclusive")
    priority = named.get("priority")
    return DestinationOptions(
        None
        if prefetch is None
        else parsed_number(where, "consumer.prefetchSize", prefetch, least=0),
        exclusive is not None and parsed_flag(where, "consumer.exclusive", exclusive),
        None if priority is None else parsed_number(where, "consumer.priority", priority),
        named.get("selector"),
    )

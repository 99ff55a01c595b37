"""RabbitMQ's definitions of exchanges, queues and bindings, and their declaration in a store."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .. import store as _store
from ..channel import Channel
from ..errors import ChannelError, UnknownArgument
from .user_list import check_name, entries, located

__all__ = ["Definitions", "declare", "parse_definitions"]

_KINDS = ("exchanges", "queues", "bindings")
_NOT_HERE = ("policies", "parameters")
_Act = Callable[[Channel], object]


@dataclass(frozen=True)
class _Entry:
    """An entry to declare, and its place in the document."""

    where: str
    act: _Act
    exchanges: tuple[str, ...] = ()
    """The exchanges that the entry declares or needs; ``queues`` likewise."""
    queues: tuple[str, ...] = ()


@dataclass
class Definitions:
    """The definitions of one virtual host."""

    exchanges: list[_Entry] = field(default_factory=list)
    queues: list[_Entry] = field(default_factory=list)
    bindings: list[_Entry] = field(default_factory=list)
    elsewhere: int = 0
    """The number of entries of other virtual hosts."""
    passed_over: list[str] = field(default_factory=list)
    """The names of policies and parameters, which have no effect here."""

    def __iter__(self) -> Iterator[_Entry]:
        """The entries in the order of their declaration."""
        yield from self.exchanges
        yield from self.queues
        yield from self.bindings


def parse_definitions(document: Any, vhost: str) -> Definitions:
    """The definitions of a virtual host, and those without one.  ValueError: an entry is invalid;
    the text names it."""
    if not isinstance(document, dict):
        raise ValueError("expected a JSON object")
    found = Definitions()
    makers = (_exchange, _queue, _binding)
    for kind, make in zip(_KINDS, makers, strict=True):
        for where, entry in entries(document, kind):
            if entry.get("vhost", vhost) != vhost:
                found.elsewhere += 1
                continue
            with located(where):
                getattr(found, kind).append(make(where, entry))
    for kind in _NOT_HERE:
        for where, entry in entries(document, kind):
            if entry.get("vhost", vhost) == vhost:
                found.passed_over.append(f"{where} ({entry.get('name')!r})")
    return found


def declare(store: _store.Store, definitions: Definitions) -> list[str]:
    """Declares everything that is missing.  If anything is impossible, nothing is declared, and
    ValueError names it.  StoreError, for example on a full disk: earlier declarations stay, and the
    call can be repeated.

    Returns: one sentence for each setting that has no effect here."""
    unknown = _rehearse(store, definitions)
    exchanges, queues = store.exchanges(), set(store.queues())
    # First the existing ones, which may differ.
    for entry in definitions.exchanges:
        if entry.exchanges[0] in exchanges:
            _do(store, entry)
    for entry in definitions.queues:
        if entry.queues[0] in queues:
            _do(store, entry)
    for entry in definitions:
        _do(store, entry)
    store.sync()
    return unknown


def _rehearse(store: _store.Store, definitions: Definitions) -> list[str]:
    """Tries the declarations in a temporary store with the same exchanges and queues."""
    exchanges = {name for entry in definitions.exchanges for name in entry.exchanges}
    queues = {name for entry in definitions.queues for name in entry.queues}
    there = store.exchanges()
    kept = set(store.queues())
    with _store.open(":memory:") as trial:
        for entry in definitions.bindings:
            for name in set(entry.exchanges) - exchanges:
                if name in there and not name.startswith("amq."):
                    known = there[name]
                    _make_exchange(known.name, known.type, {}, {}, trial.channel())
                    exchanges.add(name)
            for name in set(entry.queues) & kept - queues:
                trial.channel().queue_declare(name)
                queues.add(name)
        return [told for entry in definitions for told in _do(trial, entry)]


def _do(store: _store.Store, entry: _Entry) -> list[str]:
    with located(entry.where), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UnknownArgument)
        try:
            with store.channel() as channel:
                entry.act(channel)
        except ChannelError as error:
            raise ValueError(str(error)) from None
        except (TypeError, OverflowError, RecursionError) as error:
            raise ValueError(f"arguments: {error}") from None
    return [f"{entry.where}: {each.message}" for each in warned]


# ---- entries ----


def _exchange(where: str, entry: Mapping[str, Any]) -> _Entry:
    name = check_name(entry.get("name"), "exchange")
    flags = _flags(entry, "durable", "auto_delete", "internal")
    act = partial(_make_exchange, name, _text(entry, "type"), flags, _arguments(entry))
    return _Entry(where, act, exchanges=(name,))


def _make_exchange(
    name: str, kind: str, flags: dict[str, bool], arguments: dict[str, Any], channel: Channel
) -> None:
    channel.exchange_declare(name, kind, **flags, arguments=arguments, nowait=True)


def _queue(where: str, entry: Mapping[str, Any]) -> _Entry:
    name = check_name(entry.get("name"), "queue")
    flags, arguments = _flags(entry, "durable", "auto_delete"), _arguments(entry)

    def act(channel: Channel) -> None:
        channel.queue_declare(name, **flags, arguments=arguments, nowait=True)

    return _Entry(where, act, queues=(name,))


def _binding(where: str, entry: Mapping[str, Any]) -> _Entry:
    source = check_name(entry.get("source"), "source")
    destination = check_name(entry.get("destination"), "destination")
    kind = _text(entry, "destination_type")
    if kind not in ("queue", "exchange"):
        raise ValueError(f"destination_type must be 'queue' or 'exchange', not {kind!r}")
    key, arguments = _text(entry, "routing_key"), _arguments(entry)

    def act(channel: Channel) -> None:
        bind = channel.queue_bind if kind == "queue" else channel.exchange_bind
        bind(destination, source, key, arguments, nowait=True)

    if kind == "queue":
        return _Entry(where, act, (source,), (destination,))
    return _Entry(where, act, (source, destination))


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key} must be text, not {value!r:.80}")
    return value


def _flags(entry: Mapping[str, Any], *keys: str) -> dict[str, bool]:
    """``durable`` if it is missing, as in RabbitMQ."""
    flags = {key: entry.get(key, key == "durable") for key in keys}
    for key, value in flags.items():
        if not isinstance(value, bool):
            raise ValueError(f"{key} must be true or false, not {value!r:.80}")
    return flags


def _arguments(entry: Mapping[str, Any]) -> dict[str, Any]:
    arguments = entry.get("arguments", {})
    if arguments == []:  # some versions write an empty table so
        return {}
    if not isinstance(arguments, dict):
        raise ValueError(f"arguments must be an object, not {arguments!r:.80}")
    return arguments

"""Addresses of ends: ``DIRECTORY#QUEUE`` of a store, ``amqp://...?queue=`` of a broker,
``kafka://.../TOPIC``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from .grpc_address import SCHEMES, GrpcPlace, grpc_place
from .kafka_address import KafkaPlace, kafka_place

__all__ = ["AmqpPlace", "GrpcPlace", "KafkaPlace", "Place", "StorePlace", "place_of"]

_OURS = ("queue", "exchange", "key")
# What pika reads of a URL, but for those that would change how a shovel connects again.
_PIKAS = (
    "channel_max", "frame_max", "heartbeat", "locale", "socket_timeout", "ssl_options",
    "stack_timeout", "tcp_options",
)  # fmt: skip


_NAME_BYTES_MAX = 255
_ENCODE = (
    "encode what is special in user and password: % as %25, @ as %40, : as %3A, / as %2F, ? as %3F,"
    " # as %23"
)


@dataclass(frozen=True)
class StorePlace:
    """A queue or a stream of a store."""

    directory: str
    name: str

    @property
    def shown(self) -> str:
        """For people."""
        return f"{self.directory}#{self.name}"


@dataclass(frozen=True)
class AmqpPlace:
    """A queue of a broker; as a target, or an exchange."""

    url: str
    """For pika: without what says queue, exchange and key."""
    host: str
    """Host, port and virtual host, without user and password."""
    queue: str | None
    exchange: str | None = None
    key: str | None = None

    @property
    def shown(self) -> str:
        """For people: without user and password."""
        named = {"queue": self.queue, "exchange": self.exchange, "key": self.key}
        return f"{self.host}?{urlencode({name: v for name, v in named.items() if v is not None})}"


Place = StorePlace | AmqpPlace | GrpcPlace | KafkaPlace


def place_of(text: str, *, is_target: bool) -> Place:
    """The end that an address names.  ValueError: which part is wrong, and what to say."""
    scheme, separator, rest = text.partition("://")
    try:
        if re.match("amqps?:(?!//)", text, re.IGNORECASE):
            raise ValueError("say amqp:// or amqps://, with two slashes")
        if re.match("kafka:(?!//)", text, re.IGNORECASE):
            raise ValueError("say kafka://, with two slashes")
        if text.lower().startswith("grpc+unix:") and not separator:
            return grpc_place(text)
        if not separator:
            return _store_place(text)
        if scheme.lower() in ("amqp", "amqps"):
            return _amqp_place(text, is_target)
        if scheme.lower() in SCHEMES:
            if re.search("[/?#].*@", rest):
                raise ValueError(_ENCODE)
            return grpc_place(text)
        if scheme.lower() == "kafka":
            return kafka_place(text)
        raise ValueError(
            f"the scheme {scheme!r} is none of these: DIRECTORY#QUEUE is a queue or a stream of a"
            " store, grpc:// or grpc+tls:// one at a server, amqp:// or amqps:// a broker's,"
            " kafka:// a topic"
        )
    except ValueError as error:
        # What is told may quote a part of a password that has such a character.
        is_of_login = scheme.lower() != "kafka" and re.search("[/?#].*@", rest)
        told = _ENCODE if is_of_login else error
        raise ValueError(
            f"{'target' if is_target else 'source'} {_hidden(text)!r}: {told}"
        ) from None


def _hidden(text: str) -> str:
    """Without a password, and without all that may be a part of one."""
    if text[:6].lower() == "kafka:":  # options may be passwords
        shown = text.partition("?")[0]
        return "kafka://..." if re.search("[@#]", text) or re.search("[&=;]", shown) else shown
    scheme, _, rest = text.partition(":")
    login, at, host = rest.lstrip("/").rpartition("@")
    if scheme.lower() in SCHEMES:  # options may be passwords
        host = host.partition("?")[0]
        text = text.partition("?")[0]
    if not at:
        return text
    shown = "..." if re.search("[/?#]", login) else host
    if not rest.startswith("//"):  # it may be mistyped in any way
        return f"{scheme}:...@{shown}"
    return f"{scheme}://{re.split('[:/?#@]', login)[0]}@{shown}"


def _store_place(text: str) -> StorePlace:
    directory, separator, name = text.partition("#")
    if not separator or not directory or not name:
        raise ValueError("say DIRECTORY#QUEUE, as in orders.qs#orders")
    return StorePlace(directory, name)


def _amqp_place(text: str, is_target: bool) -> AmqpPlace:
    try:
        parts = urlsplit(text)
    except ValueError:  # which quotes the password
        raise ValueError(f"it is no URL: {_ENCODE}") from None
    if "@" in parts.path:
        raise ValueError(_ENCODE)
    if not parts.hostname:
        raise ValueError("there is no host")
    try:
        port = parts.port or (5671 if parts.scheme.lower() == "amqps" else 5672)
    except ValueError:
        raise ValueError("the port is no number of 1 to 65535") from None
    if parts.fragment:
        raise ValueError(f"a broker's queue is named by ?queue={parts.fragment}, not by #")
    named: dict[str, str] = {}
    rest = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in _OURS:
            if name in named:
                raise ValueError(f"{name}= is there twice")
            if len(value.encode("utf-8", "surrogateescape")) > _NAME_BYTES_MAX:
                raise ValueError(f"{name}= has more than {_NAME_BYTES_MAX} bytes")
            named[name] = value
        elif name in _PIKAS:
            rest.append((name, value))
        else:
            raise ValueError(f"{name}= is unknown: there are {', '.join((*_OURS, *_PIKAS))}")
    _check_named(named, is_target)
    path = "" if parts.path == "/" else parts.path
    url = urlunsplit((parts.scheme, parts.netloc, path, urlencode(rest), ""))
    host = f"{parts.scheme.lower()}://{parts.hostname}:{port}{path}"
    return AmqpPlace(url, host, named.get("queue"), named.get("exchange"), named.get("key"))


def _check_named(named: dict[str, str], is_target: bool) -> None:
    has_queue, has_exchange = bool(named.get("queue")), bool(named.get("exchange"))
    if not is_target:
        if not has_queue or len(named) > 1:
            raise ValueError("say ?queue=NAME, and nothing else of queue, exchange and key")
    elif has_queue == has_exchange:
        raise ValueError("say ?queue=NAME, or ?exchange=NAME with or without &key=KEY")
    elif has_queue and "key" in named:
        raise ValueError("key= goes with exchange=: a queue has its own name as the key")

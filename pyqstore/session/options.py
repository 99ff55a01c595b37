"""Options of connections in URIs, with ActiveMQ's names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from .redelivery import RedeliveryPolicy

__all__ = ["Options", "parse_uri", "parsed_flag", "parsed_number", "query_of"]

SCHEME = "qstore"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a connection; consumers and destinations may have their own."""

    queue_prefetch: int = 1000
    queue_browser_prefetch: int = 500
    topic_prefetch: int = 32767
    durable_topic_prefetch: int = 100
    optimize_durable_topic_prefetch: int = 1000
    optimize_acknowledge: bool = False
    optimize_timeout: float | None = 0.3
    send_acks_async: bool = True
    use_async_send: bool = False
    dead_letter_queue: str = "ActiveMQ.DLQ"
    client_id: str | None = None
    redelivery: RedeliveryPolicy = field(default_factory=RedeliveryPolicy)

    def prefetch(self, is_topic: bool, is_durable: bool, optimize: bool) -> int:
        """The default of a consumer."""
        if not is_topic:
            return self.queue_prefetch
        if not is_durable:
            return self.topic_prefetch
        return self.optimize_durable_topic_prefetch if optimize else self.durable_topic_prefetch


def parse_uri(uri: str) -> tuple[str, Options]:
    """The store's path and the options of ``qstore:///path?name=value&...``.

    ValueError names the error: another scheme, a host, an unknown option, a wrong value.
    """
    parts = urlsplit(uri)
    if parts.scheme != SCHEME or not uri.startswith(f"{SCHEME}://"):
        raise ValueError(f"a store's URI begins with 'qstore://', not {uri!r}")
    if parts.netloc:
        raise ValueError(f"{uri!r}: a store has no host; write qstore:///path")
    if not parts.path.strip("/"):
        raise ValueError(f"{uri!r} names no path: qstore:///path")
    options = Options()
    for name, value in query_of(uri, parts.query).items():
        options = _with_option(uri, options, name, value)
    return unquote(parts.path), options


def query_of(where: str, query: str) -> dict[str, str]:
    """Names and values.  ValueError: a name has no value, or occurs twice."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise ValueError(f"{where}: options are name=value&name=value, not {query!r}") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{where}: option {name!r} is given twice")
        found[name] = value
    return found


def parsed_flag(where: str, name: str, value: str) -> bool:
    """A boolean: true or false."""
    if value.lower() not in ("true", "false"):
        raise ValueError(f"{where}: option {name!r} must be true or false, not {value!r}")
    return value.lower() == "true"


def parsed_number(where: str, name: str, value: str, *, least: int | None = None) -> int:
    """A whole number."""
    try:
        number = int(value)
    except ValueError:
        number = None
    if number is None or (least is not None and number < least):
        more = "" if least is None else f" of {least} or more"
        raise ValueError(f"{where}: option {name!r} must be a whole number{more}, not {value!r}")
    return number


def _parsed_float(where: str, name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{where}: option {name!r} must be a number, not {value!r}") from None


def _count(where: str, name: str, value: str) -> int:
    return parsed_number(where, name, value, least=0)


def _seconds(where: str, name: str, value: str) -> float:
    return parsed_number(where, name, value, least=0) / 1000


def _seconds_or_unlimited(where: str, name: str, value: str) -> float:
    number = parsed_number(where, name, value, least=-1)
    return number if number < 0 else number / 1000


def _timeout(where: str, name: str, value: str) -> float | None:
    return _seconds(where, name, value) or None


def _text(where: str, name: str, value: str) -> str:
    if not value:
        raise ValueError(f"{where}: option {name!r} must not be empty")
    return value


_Parse = Callable[[str, str, str], Any]
_PREFETCH: Mapping[str, str] = {
    "queuePrefetch": "queue_prefetch",
    "queueBrowserPrefetch": "queue_browser_prefetch",
    "topicPrefetch": "topic_prefetch",
    "durableTopicPrefetch": "durable_topic_prefetch",
    "optimizeDurableTopicPrefetch": "optimize_durable_topic_prefetch",
}
_POLICY: Mapping[str, tuple[str, _Parse]] = {
    "maximumRedeliveries": ("maximum_redeliveries", parsed_number),
    "initialRedeliveryDelay": ("initial_redelivery_delay", _seconds),
    "redeliveryDelay": ("redelivery_delay", _seconds),
    "useExponentialBackOff": ("use_exponential_back_off", parsed_flag),
    "backOffMultiplier": ("back_off_multiplier", _parsed_float),
    "maximumRedeliveryDelay": ("maximum_redelivery_delay", _seconds_or_unlimited),
    "useCollisionAvoidance": ("use_collision_avoidance", parsed_flag),
    "collisionAvoidanceFactor": ("collision_avoidance_factor", _parsed_float),
}
_OTHERS: Mapping[str, tuple[str, _Parse]] = {
    "optimizeAcknowledge": ("optimize_acknowledge", parsed_flag),
    "optimizeAcknowledgeTimeOut": ("optimize_timeout", _timeout),
    "sendAcksAsync": ("send_acks_async", parsed_flag),
    "useAsyncSend": ("use_async_send", parsed_flag),
    "deadLetterQueue": ("dead_letter_queue", _text),
    "clientID": ("client_id", _text),
}
_ALL = ("prefetch", "prefetchPolicy.all")
_PASSING = "nonBlockingRedelivery"
NAMES = (
    *_ALL,
    *(f"prefetchPolicy.{name}" for name in _PREFETCH),
    *(f"redeliveryPolicy.{name}" for name in _POLICY),
    _PASSING,
    *_OTHERS,
)


def _with_option(uri: str, options: Options, name: str, value: str) -> Options:
    plain = name.removeprefix("jms.")
    room, _, rest = plain.partition(".")
    if plain in _ALL:
        every: dict[str, Any] = dict.fromkeys(_PREFETCH.values(), _count(uri, name, value))
        return replace(options, **every)
    if room == "prefetchPolicy" and rest in _PREFETCH:
        one: dict[str, Any] = {_PREFETCH[rest]: _count(uri, name, value)}
        return replace(options, **one)
    if room == "redeliveryPolicy" and rest in _POLICY:
        option, parse = _POLICY[rest]
        change = {option: parse(uri, name, value)}
    elif plain == _PASSING:
        change = {"non_blocking_redelivery": parsed_flag(uri, name, value)}
    elif plain in _OTHERS:
        option, parse = _OTHERS[plain]
        return replace(options, **{option: parse(uri, name, value)})
    else:
        nearest = difflib.get_close_matches(plain, NAMES, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else f"; there are {', '.join(NAMES)}"
        raise ValueError(f"{uri}: there is no option {name!r}{hint}")
    try:
        return replace(options, redelivery=replace(options.redelivery, **change))
    except ValueError as error:
        raise ValueError(f"{uri}: option {name!r}: {error}") from None

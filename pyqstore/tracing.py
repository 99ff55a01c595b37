"""Traces of OpenTelemetry that go on from who publishes a message to who works on it
(``pyqstore[opentelemetry]``).

A message carries its trace in headers, by default ``traceparent`` and ``tracestate`` as W3C has
them; instrumentations of other AMQP clients read and write the same.  Nothing of this runs, and
nothing costs, where it is not called.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

try:
    from opentelemetry import propagate, trace
except ModuleNotFoundError as _missing:
    raise ModuleNotFoundError(
        "pyqstore.tracing needs OpenTelemetry: pip install 'pyqstore[opentelemetry]'"
    ) from _missing

from opentelemetry.context import Context

from .callbacks import check_callable
from .channel import MessageCallback
from .message import Message
from .properties import Properties

if TYPE_CHECKING:
    from . import session

__all__ = ["extract", "inject", "instrument", "processing", "traced", "uninstrument"]

_Traceable: TypeAlias = "Message | session.Message"
_Face = TypeVar("_Face")

_TRACER = "pyqstore"
_CARRIED = "traceparent"
_MARK = "_is_traced"
_SYSTEM = "pyqstore"
_BY_ROW = "(by row)"  # columns say where each message of a batch goes
_COUNT = "messaging.batch.message_count"


def inject(properties: Properties | None = None) -> Properties | None:
    """The properties, with the current span's trace in their headers.

    The same object where there is nothing to add: no span, or a ``traceparent`` that is there
    already.
    """
    carried: dict[str, str] = {}
    propagate.inject(carried)
    headers = (properties.headers if properties is not None else None) or {}
    if not carried or _CARRIED in headers:
        return properties
    added = {**headers, **carried}
    return properties.replace(headers=added) if properties else Properties(headers=added)


def extract(message: _Traceable) -> Context:
    """The context that a message carries, for ``start_span(context=...)``; the current one, if it
    carries none."""
    headers = _properties_of(message).headers or {}
    texts = {name: value for name, value in headers.items() if isinstance(value, str)}
    return propagate.extract(texts)


@contextlib.contextmanager
def processing(message: _Traceable) -> Iterator[trace.Span]:
    """A span, the current one meanwhile, for the work on a message: a child of the span in which
    it was published.  An exception is recorded in it, and goes on."""
    source = message.routing_key if hasattr(message, "amqp") else message.queue
    with _tracer().start_as_current_span(
        f"process {source}",
        context=extract(message),
        kind=trace.SpanKind.CONSUMER,
        attributes={
            "messaging.system": _SYSTEM,
            "messaging.operation.type": "process",
            "messaging.destination.name": source,
            "messaging.message.body.size": len(message.body),
        },
    ) as span:
        _tell_message_id(span, _properties_of(message))
        yield span


def traced(callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The callback, a coroutine function or not, run in :func:`processing`: for ``basic_consume``,
    the ``listener`` of a session's consumer, and workers."""
    check_callable(callback=callback)
    if any(map(inspect.iscoroutinefunction, (callback, type(callback).__call__))):

        async def awaited(message: Any) -> Any:
            with processing(message):
                return await callback(message)

        return awaited

    def called(message: Any) -> Any:
        with processing(message):
            return callback(message)

    return called


def instrument(face: _Face) -> _Face:
    """Have what publishes open a span, which the message carries.  Returns the same object.

    ``face``: a channel (``basic_publish``; ``publish_batch``, one span whose trace all rows carry
    that have no headers of their own; callbacks that are given to ``basic_consume`` from now on are
    :func:`traced`), a session's producer (``send``) or a queue (``put``), each of either face.
    ``put_many``, ``get_batch``, ``receive`` and iterators are as they were.
    """
    kind: type = type(face)
    face.__class__ = _traced_class(kind)
    return face


def uninstrument(face: object) -> None:
    """Undo :func:`instrument`; callbacks that were registered meanwhile stay as they are."""
    kind, *bases = type(face).__mro__
    if _is_traced(kind):
        face.__class__ = bases[0]


@cache
def _traced_class(kind: type) -> type:
    """The class with other verbs, and nothing else that differs."""
    if _is_traced(kind):
        return kind
    names = [verb for verb in _VERBS if hasattr(kind, verb)]
    if names == ["publish_batch"]:  # a stream's, whose messages are read in batches, too
        names = []
    verbs = {verb: _VERBS[verb](getattr(kind, verb)) for verb in names}
    if not verbs:
        raise TypeError(f"a channel, a producer or a queue, not {kind.__name__}")
    own = {"__slots__": (), "__module__": kind.__module__, _MARK: True}
    return type(kind.__name__, (kind,), own | verbs)


def _is_traced(kind: type) -> bool:
    return _MARK in vars(kind)


def _basic_publish(verb: Callable[..., Any]) -> Callable[..., Any]:
    def basic_publish(
        self: Any,
        exchange: str,
        routing_key: str,
        body: Any,
        properties: Any = None,
        *rest: Any,
        **named: Any,
    ) -> Any:
        with _publishing(exchange or routing_key, routing_key) as span:
            if properties is not None:
                _tell_message_id(span, properties)
            return verb(self, exchange, routing_key, body, inject(properties), *rest, **named)

    return basic_publish


def _publish_batch(verb: Callable[..., Any]) -> Callable[..., Any]:
    def publishing(
        exchange: str, routing_key: str | None
    ) -> contextlib.AbstractContextManager[trace.Span]:
        return _publishing(exchange or routing_key or _BY_ROW, routing_key or "")

    if inspect.iscoroutinefunction(verb):

        async def awaited(
            self: Any,
            data: Any,
            exchange: str = "",
            routing_key: str | None = None,
            *,
            properties: Properties | None = None,
            **named: Any,
        ) -> Any:
            with publishing(exchange, routing_key) as span:
                carried = inject(properties)
                receipt = await verb(self, data, exchange, routing_key, properties=carried, **named)
                span.set_attribute(_COUNT, receipt.count)
                return receipt

        return awaited

    def called(
        self: Any,
        data: Any,
        exchange: str = "",
        routing_key: str | None = None,
        *,
        properties: Properties | None = None,
        **named: Any,
    ) -> Any:
        with publishing(exchange, routing_key) as span:
            carried = inject(properties)
            receipt = verb(self, data, exchange, routing_key, properties=carried, **named)
            span.set_attribute(_COUNT, receipt.count)
            return receipt

    return called


def _basic_consume(verb: Callable[..., Any]) -> Callable[..., Any]:
    def basic_consume(
        self: Any, queue: str, callback: MessageCallback | None = None, **named: Any
    ) -> Any:
        return verb(self, queue, None if callback is None else traced(callback), **named)

    return basic_consume


def _send(verb: Callable[..., Any]) -> Callable[..., Any]:
    return _carrying(
        verb, "properties", lambda self, named: named.get("destination") or self.destination
    )


def _put(verb: Callable[..., Any]) -> Callable[..., Any]:
    return _carrying(verb, "headers", lambda self, _: self.name)


def _carrying(
    verb: Callable[..., Any], argument: str, destination: Callable[[Any, dict[str, Any]], object]
) -> Callable[..., Any]:
    """A verb with a mapping of headers among its named arguments, which returns or is awaited."""

    def publishing(
        self: Any, named: dict[str, Any]
    ) -> contextlib.AbstractContextManager[trace.Span]:
        where = str(destination(self, named))
        return _publishing(where, where)

    def carried(named: dict[str, Any]) -> dict[str, Any]:
        given = named.get(argument) or {}
        properties = inject(Properties(headers=given) if given else None)
        return named if properties is None else {**named, argument: properties.headers}

    if inspect.iscoroutinefunction(verb):

        async def awaited(self: Any, body: Any, **named: Any) -> Any:
            with publishing(self, named):
                return await verb(self, body, **carried(named))

        return awaited

    def called(self: Any, body: Any, **named: Any) -> Any:
        with publishing(self, named):
            return verb(self, body, **carried(named))

    return called


_VERBS = {
    "basic_publish": _basic_publish,
    "publish_batch": _publish_batch,
    "basic_consume": _basic_consume,
    "send": _send,
    "put": _put,
}


def _properties_of(message: _Traceable) -> Properties:
    """A session's message has AMQP's properties under another name."""
    return message.amqp if hasattr(message, "amqp") else message.properties


def _publishing(
    destination: str, routing_key: str
) -> contextlib.AbstractContextManager[trace.Span]:
    return _tracer().start_as_current_span(
        f"publish {destination}",
        kind=trace.SpanKind.PRODUCER,
        attributes={
            "messaging.system": _SYSTEM,
            "messaging.operation.type": "publish",
            "messaging.destination.name": destination,
            "messaging.rabbitmq.destination.routing_key": routing_key,
        },
    )


def _tell_message_id(span: trace.Span, properties: Properties) -> None:
    if properties.message_id is not None:
        span.set_attribute("messaging.message.id", properties.message_id)


def _tracer() -> trace.Tracer:
    return trace.get_tracer(_TRACER)

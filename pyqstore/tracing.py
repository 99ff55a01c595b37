"""Traces of OpenTelemetry that go on from who publishes a message to who works on it
(``pyqstore[opentelemetry]``).

A message carries its trace in headers, by default ``traceparent`` and ``tracestate`` as W3C has
them; instrumentations of other AMQP clients read and write the same.  Nothing of this runs, and
nothing costs, where it is not called.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

try:
    from opentelemetry import propagate, trace
except ModuleNotFoundError as _missing:
    raise ModuleNotFoundError(
        "pyqstore.tracing needs OpenTelemetry: pip install 'pyqstore[opentelemetry]'"
    ) from _missing

from opentelemetry.context import Context

from .channel import Channel, MessageCallback
from .message import Message
from .properties import Properties

__all__ = ["extract", "inject", "instrument", "processing", "uninstrument"]

_TRACER = "pyqstore"
_CARRIED = "traceparent"
_SYSTEM = "pyqstore"
_INSTRUMENTED = ("basic_publish", "basic_consume")


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


def extract(message: Message) -> Context:
    """The context that a message carries, for ``start_span(context=...)``; the current one, if it
    carries none."""
    headers = message.properties.headers or {}
    texts = {name: value for name, value in headers.items() if isinstance(value, str)}
    return propagate.extract(texts)


@contextlib.contextmanager
def processing(message: Message) -> Iterator[trace.Span]:
    """A span, the current one meanwhile, for the work on a message: a child of the span in which
    it was published.  An exception is recorded in it, and goes on."""
    with _tracer().start_as_current_span(
        f"process {message.queue}",
        context=extract(message),
        kind=trace.SpanKind.CONSUMER,
        attributes={
            "messaging.system": _SYSTEM,
            "messaging.operation.type": "process",
            "messaging.destination.name": message.queue,
            "messaging.message.body.size": len(message.body),
        },
    ) as span:
        _tell_message_id(span, message.properties)
        yield span


def instrument(channel: Channel) -> Channel:
    """Have ``basic_publish`` of this channel open a span, which the message carries, and callbacks
    that are given to ``basic_consume`` from now on run in :func:`processing`.  Returns the channel.

    ``publish_batch``, ``get_batch`` and iterators are as they were.
    """
    weak = weakref.ref(channel)

    def basic_publish(
        exchange: str, routing_key: str, body: Any, properties: Any = None, *rest: Any, **named: Any
    ) -> int:
        with _publishing(exchange, routing_key) as span:
            if properties is not None:
                _tell_message_id(span, properties)
            return Channel.basic_publish(
                _alive(weak), exchange, routing_key, body, inject(properties), *rest, **named
            )

    def basic_consume(queue: str, callback: MessageCallback | None = None, **named: Any) -> str:
        traced = None if callback is None else _traced(callback)
        return Channel.basic_consume(_alive(weak), queue, traced, **named)

    vars(channel).update(basic_publish=basic_publish, basic_consume=basic_consume)
    return channel


def uninstrument(channel: Channel) -> None:
    """Undo :func:`instrument`; callbacks that were registered meanwhile stay as they are."""
    for name in _INSTRUMENTED:
        vars(channel).pop(name, None)


def _alive(weak: weakref.ref[Channel]) -> Channel:
    channel = weak()
    if channel is None:
        raise ReferenceError("the channel is gone")
    return channel


def _traced(callback: MessageCallback) -> MessageCallback:
    def traced(message: Message) -> object:
        with processing(message):
            return callback(message)

    return traced


def _publishing(exchange: str, routing_key: str) -> contextlib.AbstractContextManager[trace.Span]:
    destination = exchange or routing_key
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

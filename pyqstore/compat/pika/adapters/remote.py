"""A connection to the process that owns the store: a connection of pika itself, with the exceptions
of this package."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from .. import exceptions, spec
from .blocking_channel import BlockingChannel
from .blocking_connection import BlockingConnection
from .link import Link

__all__ = ["RemoteChannel", "RemoteConnection"]

_CHANNEL_VERBS = (
    *("basic_ack", "basic_cancel", "basic_get", "basic_nack", "basic_qos", "basic_recover"),
    *("basic_reject", "cancel", "close", "confirm_delivery", "exchange_bind"),
    *("exchange_declare", "exchange_delete", "exchange_unbind", "flow"),
    *("get_waiting_message_count", "queue_bind", "queue_declare", "queue_delete", "queue_purge"),
    *("queue_unbind", "start_consuming", "stop_consuming", "tx_commit", "tx_rollback"),
    *("tx_select", "add_on_cancel_callback"),
)
_CONNECTION_VERBS = (
    *("add_callback_threadsafe", "add_on_connection_blocked_callback"),
    *("add_on_connection_unblocked_callback", "call_later", "close", "process_data_events"),
    *("remove_timeout", "sleep", "update_secret"),
)


def _called(verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls pika; its exceptions are raised as this package's exceptions of the same names."""
    try:
        return verb(*args, **kwargs)
    except Exception as error:
        kind = getattr(exceptions, type(error).__name__, None)
        if kind is None or not type(error).__module__.startswith("pika."):
            raise
        undelivered = getattr(error, "messages", None)
        args = error.args if undelivered is None else (undelivered,)
        raise kind(*args) from error


class RemoteChannel(BlockingChannel):
    """A channel of pika itself."""

    def __init__(self, channel_impl: Any, connection: Link) -> None:
        self._theirs = channel_impl
        self._connection = connection
        for name in _CHANNEL_VERBS:
            setattr(self, name, partial(_called, getattr(channel_impl, name)))

    @property
    def channel_number(self) -> int:
        return int(self._theirs.channel_number)

    @property
    def consumer_tags(self) -> list[str]:
        return list(self._theirs.consumer_tags)

    @property
    def is_closed(self) -> bool:
        return bool(self._theirs.is_closed)

    def add_on_return_callback(self, callback: Callable[..., object]) -> None:
        self._theirs.add_on_return_callback(
            lambda _, method, properties, body: callback(self, method, properties, body)
        )

    def basic_publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes | str,
        properties: spec.BasicProperties | None = None,
        mandatory: bool = False,
    ) -> None:
        encoded = None
        if properties is not None:
            encoded = importlib.import_module("pika").BasicProperties(**vars(properties))
        _called(self._theirs.basic_publish, exchange, routing_key, body, encoded, mandatory)

    def basic_consume(
        self,
        queue: str,
        on_message_callback: Callable[..., object],
        auto_ack: bool = False,
        exclusive: bool = False,
        consumer_tag: str | None = None,
        arguments: Any = None,
    ) -> str:
        def called(_: object, method: Any, properties: Any, body: bytes) -> None:
            on_message_callback(self, method, properties, body)

        tag = _called(
            self._theirs.basic_consume, queue, called, auto_ack, exclusive, consumer_tag, arguments
        )
        return str(tag)

    def consume(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        iterator = _called(self._theirs.consume, *args, **kwargs)
        while True:
            try:
                told = _called(next, iterator)
            except StopIteration:
                return
            yield told


class RemoteConnection(BlockingConnection):
    """A connection of pika itself."""

    def __init__(self, parameters: Any = None, _impl_class: Any = None) -> None:
        address = self._attachment.address
        assert address is not None
        given = self._parameters
        try:
            pika = importlib.import_module("pika")
        except ImportError:
            raise exceptions.AMQPConnectionError(
                f"process {address.pid} has the store open, and pika, which reaches it, is not"
                " installed: pip install pika, or do all of it in one process"
            ) from None
        told = pika.ConnectionParameters(
            host=address.host,
            port=address.port,
            credentials=pika.PlainCredentials(address.user, address.password),
            connection_attempts=given.connection_attempts,
            retry_delay=given.retry_delay,
            socket_timeout=given.socket_timeout,
            stack_timeout=given.stack_timeout,
            blocked_connection_timeout=given.blocked_connection_timeout,
            heartbeat=given.heartbeat,
        )
        self._theirs = _called(pika.BlockingConnection, told)
        for name in _CONNECTION_VERBS:
            setattr(self, name, partial(_called, getattr(self._theirs, name)))

    def channel(self, channel_number: int | None = None) -> BlockingChannel:
        return RemoteChannel(_called(self._theirs.channel, channel_number), self)

    @property
    def is_closed(self) -> bool:
        return bool(self._theirs.is_closed)

    def _end(self) -> None:
        """Nothing to do: the owner sees the socket close."""


BlockingConnection._remote = RemoteConnection

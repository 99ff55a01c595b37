"""The calls of a server by name, and takers of rows that arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ..channel import Channel
from ..errors import NotImplementedByBroker, PublishRefused
from ..message import Receipt
from ..queue import _Channels
from ..store import Store
from ..stream import Stream, check_stream, declare
from .asking import Asking
from .committing import Committing
from .holding import Holdings
from .putting import Answer, Taker
from .routes import Route
from .staging import Staging, Writing
from .wire import unpack_properties, unpack_table

__all__ = ["Verbs", "check_no_stream"]

_WINDOW_MAX = 64
_DECLARING = (
    "exchange_declare",
    "exchange_delete",
    "exchange_bind",
    "exchange_unbind",
    "queue_declare",
    "queue_bind",
    "queue_unbind",
    "queue_purge",
    "queue_delete",
)


_QUEUE_DECLARE: dict[str, Any] = {
    "queue": "",
    "passive": False,
    "durable": False,
    "exclusive": False,
    "auto_delete": False,
    "arguments": None,
}


class Verbs:
    """The calls of a store, for clients with or without a held connection."""

    def __init__(self, store: Store, holdings: Holdings, staging: Staging) -> None:
        self._store = store
        self._holdings = holdings
        self._staging = staging
        committing = Committing(store, staging)
        committing.sweep_done()
        self._actions: dict[str, Callable[..., Any]] = {
            **Asking(store).verbs,
            "settle": self._settle,
            "stats": lambda: store.stats().to_dict(),
            "stream_declare": self._stream_declare,
            "forget_transaction": committing.forget,
            "transaction_state": committing.state,
            "commit_staged": committing.commit,
            "abort_staged": self._staging.sweep,
            "prepare_staged": committing.prepare,
            "commit_prepared": committing.commit_prepared,
            "refuse_run": committing.refuse,
            "rollback_prepared": committing.rollback,
        }
        for verb in _DECLARING:
            self._actions[verb] = self._declaring(verb)

    def described(self) -> list[tuple[str, str]]:
        """The names of the calls."""
        return [(name, "arguments and answer are JSON") for name in self._actions]

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Make the call, and return its answer.  Raises ValueError if there is no such call, and
        every exception of the call."""
        if name not in self._actions:
            raise ValueError(f"no such action: {name!r}; there are {', '.join(self._actions)}")
        return self._actions[name](**arguments)

    # Declaring, on a channel that nothing else depends on: an error ends it, and must not be one
    # that ends the connection, with what was got through it and its exclusive queues.

    def _declaring(self, verb: str) -> Callable[..., Any]:
        is_of_queues = verb.startswith("queue")  # which a connection may have for itself

        def call(connection: str | None = None, arguments: str | None = None, **given: Any) -> Any:
            if arguments is not None:
                given["arguments"] = unpack_table(arguments)
            if verb == "queue_purge":
                check_no_stream(self._store, given["queue"], "queue.purge")
            with self._channel(connection if is_of_queues else None) as channel:
                if verb == "queue_declare":  # the client warns whoever calls it
                    return channel._declare_queue(**{**_QUEUE_DECLARE, **given})
                return getattr(channel, verb)(**given)

        return call

    @contextmanager
    def _channel(self, connection: str | None) -> Iterator[Channel]:
        owner = self._store if connection is None else self._holdings.find(connection).connection
        with owner.channel() as channel:
            yield channel

    def _stream_declare(self, name: str, arguments: str | None) -> None:
        declare(self._store, _Channels(self._store), name, unpack_table(arguments) or {})

    # Settling.

    def _settle(
        self,
        connection: str,
        delivery_tag: int,
        multiple: bool,
        requeue: bool | None = None,
        delay: float | None = None,
    ) -> None:
        """``requeue``: None acknowledges."""
        with self._holdings.find(connection).channel() as channel:
            if requeue is None:
                channel.basic_ack(delivery_tag, multiple)
            else:
                channel.basic_nack(delivery_tag, multiple, requeue, delay=delay)

    # Rows that come in.

    @contextmanager
    def taker(self, do: str, schema: pa.Schema, arguments: dict[str, Any]) -> Iterator[Taker]:
        """The taker for a descriptor, until the call ends.  ValueError: there is no such
        descriptor."""
        kinds: dict[str, Callable[..., AbstractContextManager[Taker]]] = {
            "publish": self._publish,
            "publish_stream": self._publish_stream,
        }
        if do == "stage":
            writing = self._staging.write(schema, **_staging_arguments(**arguments))
            try:
                yield _Stage(writing)
            finally:
                writing.close()
        elif do in kinds:
            with kinds[do](**arguments) as taker:
                yield taker
        else:
            raise ValueError(f"no such descriptor: {do!r}; there are {', '.join(kinds)}, stage")

    @contextmanager
    def _publish(self, connection: str | None = None, **arguments: Any) -> Iterator[Taker]:
        with self._channel(connection) as channel:
            channel.confirm_select()
            channel.add_return_listener(lambda _: None)
            yield _Publish(channel, **arguments)

    @contextmanager
    def _publish_stream(
        self, stream: str, routing_key: str | None = None, body: str = "body", window: int = 1
    ) -> Iterator[Taker]:
        check_stream(self._store, stream)
        yield _PublishStream(Stream(self._store, stream), routing_key, body)


def check_no_stream(store: Store, queue: str, verb: str) -> None:
    """Raises NotFound; NotImplementedByBroker, like a channel whose connection that error
    closes."""
    if store.queue_status(queue).stream:
        raise NotImplementedByBroker(
            540, f"NOT_IMPLEMENTED - {verb} not supported by stream queues queue '{queue}'"
        )


def _staging_arguments(
    exchange: str | None = None,
    routing_key: str | None = None,
    properties: str | None = None,
    **names: Any,
) -> dict[str, Any]:
    missing = [name for name in ("transaction", "partition", "attempt") if name not in names]
    if missing:
        raise ValueError(f"stage needs {', '.join(missing)}")
    return {**names, "route": Route.told(exchange, routing_key, properties)}


class _Publish:
    """Publishes to an exchange; rows are confirmed when they are durable."""

    confirms = True

    def __init__(
        self,
        channel: Channel,
        exchange: str = "",
        routing_key: str | None = None,
        body: str = "body",
        mandatory: bool = False,
        properties: str | None = None,
        window: int = 8,
    ) -> None:
        if type(window) is not int or window < 1:
            raise ValueError(f"window must be 1 or more, not {window!r}")
        self.window = min(window, _WINDOW_MAX)
        self._channel = channel
        self._where = exchange, routing_key
        self._options: dict[str, Any] = {
            "body": body,
            "mandatory": mandatory,
            "properties": unpack_properties(properties),
        }

    def take(self, batch: pa.RecordBatch) -> Callable[[], Answer]:
        receipt = self._channel.publish_batch(batch, *self._where, **self._options)
        if receipt.returned:
            self._channel.process_events()  # messages that came back hold memory
        return lambda: _confirmed(receipt)

    def end(self) -> Answer:
        return {"end": True}


class _PublishStream:
    """Publishes to a stream; rows are durable when they are taken."""

    window = 1
    confirms = True

    def __init__(self, stream: Stream, routing_key: str | None, body: str) -> None:
        self._stream = stream
        self._options: dict[str, Any] = {"routing_key": routing_key, "body": body}

    def take(self, batch: pa.RecordBatch) -> Callable[[], Answer]:
        receipt = self._stream.publish_batch(batch, **self._options)
        return lambda: _confirmed(receipt)

    def end(self) -> Answer:
        return {"end": True}


class _Stage:
    """Writes to a file, which counts when a commit names it."""

    window = 8
    confirms = False

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def take(self, batch: pa.RecordBatch) -> Callable[[], Answer]:
        self._writing.add(batch)
        return lambda: {"rows": batch.num_rows}

    def end(self) -> Answer:
        return {"end": True, "staged": list(self._writing.finish())}


def _confirmed(receipt: Receipt) -> Answer:
    rows: tuple[int, ...] = ()
    try:
        receipt.wait()
    except PublishRefused as error:
        rows = error.rows
    return {
        "rows": receipt.count,
        "refused": receipt.refused,
        "refused_rows": rows,
        "refused_by": receipt._refused_by,
        "returned": receipt.returned,
        "unroutable": receipt.unroutable,
    }

"""Copies of messages for observers: RabbitMQ's firehose.

While a virtual host is traced, each message published to it, and each delivered from it, is
published again, to the exchange ``amq.rabbitmq.trace``.  The copy has the key ``publish.EXCHANGE``
or ``deliver.QUEUE``, the message's body, and its data in headers.  A thread makes the copies from a
trace of the store, which never waits for the thread.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from threading import Event, Lock, Thread
from typing import NamedTuple

from .. import _core
from .. import store as _store
from ..closing import Closing
from ..errors import StoreClosed, StoreFailed
from ..properties import NAMES, Properties
from ..waiting import SLICE_NS
from .node import NODE

__all__ = ["Firehose", "is_traced", "switch"]

_log = logging.getLogger("pyqstore")

_EXCHANGE = "amq.rabbitmq.trace"
_LOOK_S = 1.0  # between two warnings
_REST_S = 2.0  # for steps before the end
_JOIN_S = 5.0
_KEY_BYTES_MAX = 255
_INT32_MAX = 2**31 - 1
_NAMES_KEPT = 1024
_switching = Lock()
_HEADERS_FLAG = 0x2000

_put_u16 = struct.Struct(">H").pack
_put_u32 = struct.Struct(">I").pack
_put_i32 = struct.Struct(">i").pack
_put_u64 = struct.Struct(">Q").pack

NameOf = Callable[[int, int, str], str]
"""The name of a connection, by its number, its client's number, and its client's address."""


class Told(NamedTuple):
    """A message that was routed or delivered, from the trace."""

    is_delivered: bool
    exchange: str
    routing_key: str
    queues: list[str]
    channel: int
    properties: bytes
    body: bytes
    peer: str
    user: str
    connection: int
    client: int
    client_channel: int
    redelivered: bool


class _Missed(NamedTuple):
    """Messages that were not copied."""

    failed: int = 0
    """Messages whose copy failed."""
    why: Exception | None = None
    """The last error."""
    late: int = 0
    """Messages left when the copying ended, without those that the trace dropped."""


class Firehose(Closing):
    """Copies the messages of a store, in a thread of its own, until either is closed."""

    def __init__(self, vhost: str, store: _store.Store, name_of: NameOf) -> None:
        """Copies every later step of messages.  StoreClosed, StoreFailed."""
        self._store = store
        self._vhost = vhost
        self._name_of = lru_cache(_NAMES_KEPT)(name_of)
        self._ending = Event()
        self._ends_at = 0.0
        self._freeing = Lock()  # protects the trace, which another thread may end
        self._looked_at = time.monotonic()
        self._missed = _Missed()
        self._logged = _Missed()
        self._channel = store.channel()
        try:
            self._trace = _core.Trace(store, None, None, True)
            self._thread = Thread(target=self._run, name="pyqstore-firehose", daemon=True)
            self._thread.start()
        except BaseException:
            self._channel.close()
            raise

    @property
    def is_running(self) -> bool:
        """Whether messages are copied."""
        return self._thread.is_alive() and not self._ending.is_set()

    def end(self) -> None:
        """Copies the steps so far, for at most two seconds, and ends."""
        self._ends_at = time.monotonic() + _REST_S
        with self._freeing, suppress(StoreClosed, ValueError):  # it is closed already
            self._trace._end()
        self._ending.set()

    def close(self) -> None:
        """Like ``end``, and waits until that is done."""
        self.end()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        try:
            while self._copy_next():
                pass
        except (StoreClosed, StoreFailed):
            pass  # the caller is told
        except Exception:
            _log.exception("vhost %r: messages are copied no more", self._vhost)
        with suppress(StoreClosed, StoreFailed):
            self._leave_rest()
        with self._freeing:
            self._trace._close()
        self._channel.close()

    def _copy_next(self) -> bool:
        """Copies the next message; whether there was one.  An error of one message does not affect
        others."""
        try:
            found = self._next()
            if found is None:
                return False
            self._copy(Told._make(found))
        except (StoreClosed, StoreFailed):
            raise
        except Exception as error:
            self._missed = self._missed._replace(failed=self._missed.failed + 1, why=error)
            if self._channel.closed:
                self._channel = self._store.channel()
        return True

    def _next(self) -> tuple[object, ...] | None:
        while not self._ending.is_set():
            if time.monotonic() - self._looked_at >= _LOOK_S:
                self._log_missed()
            if (found := self._trace._next_content(SLICE_NS)) is not None:
                return found
        return self._trace._next_content(0) if time.monotonic() < self._ends_at else None

    def _copy(self, told: Told) -> None:
        headers = self._headers(told)
        blob = _put_u16(_HEADERS_FLAG) + _put_u32(len(headers)) + headers
        self._channel._publish_anywhere(_EXCHANGE, _key(told), blob, told.body)

    def _leave_rest(self) -> None:
        self._trace._end()
        while self._trace._next_content(0) is not None:
            self._missed = self._missed._replace(late=self._missed.late + 1)
        self._log_missed()

    def _log_missed(self) -> None:
        """Logs the messages that were missed since the last warning."""
        self._looked_at = time.monotonic()
        missed, logged = self._missed, self._logged
        late = missed.late + self._trace.dropped
        if missed.failed > logged.failed:
            self._warn(missed.failed - logged.failed, missed.why)
        if late > logged.late:
            self._warn(late - logged.late, "copies take longer than messages")
        self._logged = missed._replace(late=late)

    def _warn(self, count: int, why: object) -> None:
        text = "vhost %r: %d messages were not copied to %s: %s"
        _log.warning(text, self._vhost, count, _EXCHANGE, why)

    def _headers(self, told: Told) -> bytes:
        properties = Properties.decode(told.properties)
        keys = [told.routing_key, *_copied_to(properties)]
        name = self._name_of(told.connection, told.client, told.peer)
        entries = [
            _entry("exchange_name", _text(told.exchange)),
            _entry("routing_keys", _array(map(_text, keys))),
            _entry("properties", _table(b"".join(_entries_of(properties)))),
            _entry("node", _text(NODE)),
            _entry("vhost", _text(self._vhost)),
            _entry("connection", _text(name)),
            _entry("channel", _integer(told.client_channel or told.channel)),
            _entry("user", _text(told.user)),
        ]
        if told.is_delivered:
            entries.append(_entry("redelivered", _integer(int(told.redelivered))))
        else:
            entries.append(_entry("routed_queues", _array(map(_text, told.queues))))
        return b"".join(entries)


def is_traced(store: _store.Store) -> bool:
    """Whether the messages of a store are copied."""
    found: Firehose | None = store._firehose
    return found is not None and found.is_running


def switch(vhost: str, store: _store.Store, name_of: NameOf, *, on: bool) -> None:
    """Starts or stops copying the messages of a store; copying also ends when the store is closed.
    ``name_of``: the name of a connection.  Any thread may call it.  StoreClosed, StoreFailed."""
    with _switching:
        before: Firehose | None = store._firehose
        if on and not is_traced(store):
            store._firehose = Firehose(vhost, store, name_of)
        elif not on and before is not None:
            store._firehose = None
            before.end()  # under the lock, so no message is copied twice
    if not on and before is not None:
        before.close()


def _key(told: Told) -> bytes:
    """Names may be as long as keys, so the key is cut."""
    words = ("deliver", told.queues[0]) if told.is_delivered else ("publish", told.exchange)
    return ".".join(words).encode("utf-8", "surrogateescape")[:_KEY_BYTES_MAX]


def _copied_to(properties: Properties) -> list[str]:
    """The further routing keys of a message."""
    try:
        keys = properties.headers.get("CC")
    except ValueError:  # malformed headers have none
        return []
    return [each for each in keys if isinstance(each, str)] if isinstance(keys, list) else []


# ---- tables: encoded here, because RabbitMQ's types differ from those of Python's values ----


def _entries_of(properties: Properties) -> Iterator[bytes]:
    for name, value in zip(NAMES, properties.values, strict=True):
        if isinstance(value, bytes):  # the headers, already encoded
            yield _entry(name, _table(value))
        elif isinstance(value, int):
            yield _entry(name, _integer(value))
        elif isinstance(value, str):
            yield _entry(name, _text(value))


def _entry(name: str, value: bytes) -> bytes:
    return bytes([len(name)]) + name.encode() + value


def _table(entries: bytes) -> bytes:
    return b"F" + _put_u32(len(entries)) + entries


def _array(values: Iterable[bytes]) -> bytes:
    joined = b"".join(values)
    return b"A" + _put_u32(len(joined)) + joined


def _text(value: str) -> bytes:
    encoded = value.encode("utf-8", "surrogateescape")
    return b"S" + _put_u32(len(encoded)) + encoded


def _integer(value: int) -> bytes:
    return b"I" + _put_i32(value) if value <= _INT32_MAX else b"l" + _put_u64(value)

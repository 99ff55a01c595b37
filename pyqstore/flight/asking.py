"""Calls to a store by name that need no connection with deliveries."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ..claiming import claim, end_claim, release
from ..store import Store
from ..stream import Stream, check_stream, offset_of
from .wire import PROTOCOL, unpack_start, unpack_table

__all__ = ["Asking"]

# Of stores: each may be asked through several listeners.
_CLAIMING = weakref.WeakKeyDictionary[Store, threading.Lock]()


class Asking:
    """The calls of a store, in ``verbs``: each takes arguments and returns an answer that JSON can
    express."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._claiming = _CLAIMING.setdefault(store, threading.Lock())
        self.verbs: dict[str, Callable[..., Any]] = {
            "hello": self._hello,
            "queues": store.queues,
            "queue_status": lambda name: store.queue_status(name).to_dict(),
            "stream_status": self._stream_status,
            "offset_of": self._offset_of,
            "commit_offset": self._commit_offset,
            "transaction_known": store.transaction_known,
            "forget_transaction": store.forget_transaction,
            "queue_declare": self._queue_declare,
            "queue_delete": self._queue_delete,
            "claim": self._claim,
            "end_claim": self._end_claim,
            "release_claims": self._release_claims,
        }

    def _hello(self, protocol: int) -> dict[str, Any]:
        if protocol != PROTOCOL:
            raise ValueError(
                f"client and server are of different versions: {protocol} and {PROTOCOL}"
            )
        return {"protocol": PROTOCOL, "options": {"read_only": self._store.options["read_only"]}}

    # Queues.

    def _queue_declare(
        self, queue: str, passive: bool, durable: bool, arguments: str | None
    ) -> None:
        with self._store.channel() as channel:
            table = unpack_table(arguments)
            channel._declare_queue(queue, passive, durable, False, False, table)

    def _queue_delete(self, queue: str) -> None:
        with self._store.channel() as channel:
            channel.queue_delete(queue)

    # Streams.

    def _stream_status(self, name: str) -> dict[str, Any]:
        check_stream(self._store, name)
        return Stream(self._store, name).status().to_dict()

    def _offset_of(self, name: str, start: Any) -> int:
        check_stream(self._store, name)
        return offset_of(self._store, name, unpack_start(start))

    def _commit_offset(self, name: str, group: str, offset: int) -> None:
        with self._store.channel() as channel:
            channel._commit_offset(name, group, offset)

    # Claiming.

    def _claim(
        self, queue: str, name: str, rows_max: int | None = None, done: Sequence[str] = ()
    ) -> list[int] | None:
        """Like ``claiming.claim``; the claims in ``done`` are ended and forgotten."""
        with self._claiming:
            claimed = claim(self._store, queue, name, rows_max)
            for old in done:
                end_claim(self._store, old)
                self._store.forget_transaction(old)
        return None if claimed is None else list(claimed)

    def _end_claim(self, name: str) -> bool:
        """End a claim when no call adds to it any more: later additions would be lost."""
        with self._claiming:
            return end_claim(self._store, name)

    def _release_claims(self, queue: str, prefix: str) -> int:
        with self._claiming:
            return release(self._store, queue, prefix)

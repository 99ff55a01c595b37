"""An end of a shovel that runs elsewhere, for as long as its call lasts."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ..errors import ConnectionLost
from ..shovelling.ends import Acked, Batch, Full, Item
from ..shovelling.grpc_wire import (
    SCHEMA,
    items_of,
    pack_failure,
    pack_items,
    pack_position,
    unpack_position,
)
from ..shovelling.store_source import StoreSource
from ..shovelling.store_target import StoreTarget
from ..store import Store
from .checking import check_batch
from .wire import unpack_start

__all__ = ["serve_end"]

_WATCH_S = 0.2
_SILENT_S = 60.0
_LOOK_S = 0.5  # between two looks at how many messages wait
Answer = tuple[dict[str, Any], list[Item]]


def serve_end(
    store: Store, command: dict[str, Any], reader: Any, writer: Any, closing: threading.Event
) -> None:
    """Answer the calls of a shovel to an end, until it makes no more, or the end fails."""
    writer.begin(SCHEMA)
    kinds: dict[str, Callable[..., _End]] = {"source": _SourceEnd, "target": _TargetEnd}
    try:
        end = kinds[command.pop("end")](store, **command)
    except Exception as error:
        _tell(reader, writer, error)
        return
    with _Held(end, closing) as held:
        try:
            _write(writer, held.call(end.open))
            while True:
                chunk = reader.read_chunk()
                _write(writer, held.call(_answer, end, chunk))
        except StopIteration:
            pass
        except pa.ArrowException:
            raise  # the shovel went
        except Exception as error:
            _tell(reader, writer, error)


def _answer(end: _End, chunk: Any) -> Answer:
    asked = json.loads(chunk.app_metadata.to_pybytes())
    if chunk.data is not None:
        check_batch(chunk.data)
    if asked["do"] == "here":
        return {}, []
    try:
        return end.answer(asked, chunk.data)
    except Full as error:
        if asked["do"] in ("settle", "bury"):
            return pack_failure(error), []  # it is asked again
        raise


def _tell(reader: Any, writer: Any, error: Exception) -> None:
    """Report an error. gRPC permits no end of the call while the shovel writes, so its input is
    read to the end."""
    _write(writer, (pack_failure(error), []))
    with contextlib.suppress(StopIteration):
        while True:
            reader.read_chunk()


class _Held:
    """An end, for as long as the call lasts, but not longer than the server runs, or than the
    shovel sends something now and then: gRPC does not report for hours that a machine has
    vanished."""

    def __init__(self, end: _End, closing: threading.Event) -> None:
        self._end = end
        self._closing = closing
        self._lock = threading.Lock()
        self._heard = time.monotonic()
        self._why = ""
        self._is_over = threading.Event()

    def __enter__(self) -> _Held:
        threading.Thread(target=self._watch, name="shovel's end", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._close("the call ended")

    def call(self, do: Callable[..., Answer], *arguments: Any) -> Answer:
        """Make the call, and return its result.  ConnectionLost: the end is closed."""
        with self._lock:
            if self._why:
                raise ConnectionLost(self._why)
            answer = do(*arguments)
            self._heard = time.monotonic()
        return answer

    def _watch(self) -> None:
        while not self._is_over.wait(_WATCH_S):
            if self._closing.is_set():
                self._close("the server ends")
            elif time.monotonic() - self._heard > _SILENT_S:
                self._close(f"the shovel said nothing for {_SILENT_S:g} s")

    def _close(self, why: str) -> None:
        with self._lock:
            if not self._why:
                self._why = why
                self._end.close()


def _write(writer: Any, answer: Answer) -> None:
    told, items = answer
    text = json.dumps(told).encode()
    if items:
        writer.write_with_metadata(pack_items(items), text)
    else:
        writer.write_metadata(text)


class _End(ABC):
    @abstractmethod
    def open(self) -> Answer:
        """The first answer to the shovel."""

    @abstractmethod
    def answer(self, asked: dict[str, Any], rows: pa.RecordBatch | None) -> Answer:
        """The answer to a call."""

    @abstractmethod
    def close(self) -> None:
        """Close the end: unsettled messages stay in their queue."""


class _SourceEnd(_End):
    """A ``StoreSource``."""

    def __init__(
        self, store: Store, *, name: str, start: Any, position: Any, dead: str | None, **how: Any
    ) -> None:
        if dead is not None:
            store.queue(dead)
        self._position = unpack_position(position)
        begin = unpack_start(start)
        self._source = StoreSource(store, name, start=begin, dead=dead, shown=name, **how)
        self._batches: dict[int, Batch] = {}
        self._number = 0
        self._lag: int | None = None
        self._looked = -_LOOK_S

    def open(self) -> Answer:
        self._source.open(self._position)
        return {"started": pack_position(self._source.started)}, []

    def answer(self, asked: dict[str, Any], rows: pa.RecordBatch | None) -> Answer:
        do = asked["do"]
        if do == "read":
            return self._read(asked)
        if do == "bury":
            dead = {int(index): reason for index, reason in asked["dead"].items()}
            self._source.bury(Batch(items_of(rows, 0), 0, dead=dead))
        else:
            self._source.settle(self._batches[asked["number"]])
            del self._batches[asked["number"]]
        return {}, []

    def _read(self, asked: dict[str, Any]) -> Answer:
        batch = self._source.read(asked["most"], asked["bytes_most"], asked["timeout"])
        now = time.monotonic()
        if batch is None or now - self._looked >= _LOOK_S:  # which takes a while in a long queue
            self._looked, self._lag = now, self._source.lag()
        if batch is None:
            return {"lag": self._lag}, []
        self._number += 1
        self._batches[self._number] = batch
        position = pack_position(batch.position)
        return {"number": self._number, "position": position, "lag": self._lag}, batch.items

    def close(self) -> None:
        self._source.close()


class _TargetEnd(_End):
    """A ``StoreTarget``."""

    def __init__(self, store: Store, *, name: str, shovel: str, dead: str | None) -> None:
        if dead is not None:
            store.queue(dead)
        self._target = StoreTarget(store, name, shovel=shovel, dead=dead, shown=name)
        self._acked: dict[str, Acked] = {}

    def open(self) -> Answer:
        return {"position": pack_position(self._target.open())}, []

    def answer(self, asked: dict[str, Any], rows: pa.RecordBatch | None) -> Answer:
        for token in asked["for_good"]:
            if token in self._acked:  # else of a call before this one
                self._acked.pop(token).for_good = True
        if asked["do"] == "tend":
            self._target.tend(0)
            return {}, []
        batch = Batch(
            items_of(rows, 0),
            asked["epoch"],
            unpack_position(asked["position"]),
            dead={int(index): reason for index, reason in asked["dead"].items()},
            acked=Acked() if asked["tells"] else None,
            token=asked["token"],
        )
        self._target.begin(batch)
        ended = self._target.ended(0)
        assert ended is batch
        if batch.acked is not None:
            self._acked[batch.token] = batch.acked
        return {"repeated": batch.repeated, "dead_written": batch.dead_written}, []

    def close(self) -> None:
        self._target.close()

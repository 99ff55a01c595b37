"""An end of a shovel that works elsewhere, for as long as its call lasts."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ..shovelling.ends import Acked, Batch, Item
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
from .wire import unpack_start

__all__ = ["serve_end"]

_LOOK_S = 0.5  # between two looks at how many messages wait
Answer = tuple[dict[str, Any], list[Item]]


def serve_end(
    store: Store, command: dict[str, Any], reader: Any, writer: Any, check: Callable[[], None]
) -> None:
    """Answer what a shovel asks of an end, until it has no more to ask, or the end fails.

    ``check`` raises when the server ends.
    """
    writer.begin(SCHEMA)
    end: _End | None = None
    try:
        end = (
            _SourceEnd(store, **command)
            if command.pop("end") == "source"
            else _TargetEnd(store, **command)
        )
        _write(writer, end.open())
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                return
            check()
            asked = json.loads(chunk.app_metadata.to_pybytes())
            _write(writer, end.answer(asked, chunk.data))
    except pa.ArrowException:
        raise  # the shovel went
    except Exception as error:
        _write(writer, (pack_failure(error), []))
    finally:
        if end is not None:
            end.close()


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
        """What the shovel hears first."""

    @abstractmethod
    def answer(self, asked: dict[str, Any], rows: pa.RecordBatch | None) -> Answer:
        """To what it asks."""

    @abstractmethod
    def close(self) -> None:
        """What was not settled stays in its queue."""


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
        return {}, []

    def answer(self, asked: dict[str, Any], rows: pa.RecordBatch | None) -> Answer:
        do = asked["do"]
        if do == "read":
            return self._read(asked)
        batch = self._batches[asked["number"]]
        if do == "bury":
            batch.dead = {int(index): reason for index, reason in asked["dead"].items()}
            self._source.bury(batch)
        else:
            self._source.settle(batch)
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
            self._acked.pop(token).for_good = True
        if asked["do"] == "tend":
            self._target.tend(0)
            return {"tended": True}, []
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

"""Rows of a task dealt to shards by a key.

Each shard has a thread, which stages the shard's rows while the task computes more of them.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["deal"]

Staged = TypeVar("Staged")
_AHEAD = 2  # batches that wait for a shard
_LOOK_S = 0.2  # between two looks at whether a shard has failed


class _GivenUpError(Exception):
    """The task has failed: what was staged is to count for nothing."""


class _Lane(Generic[Staged]):
    """The rows of one shard on their way, and the thread that stages them."""

    def __init__(
        self,
        threads: ThreadPoolExecutor,
        stage: Callable[[int, Iterator[pa.RecordBatch]], Staged],
        shard: int,
    ) -> None:
        self._waiting: queue.Queue[pa.RecordBatch | None] = queue.Queue(_AHEAD)
        self._is_given_up = False
        self.staged: Future[Staged] = threads.submit(stage, shard, self._batches())

    def put(self, batch: pa.RecordBatch | None) -> None:
        """None: the last one was put.  Raises what ended the thread."""
        while not self.staged.done():
            try:
                self._waiting.put(batch, timeout=_LOOK_S)
                return
            except queue.Full:
                continue
        self.staged.result()  # it was told of no end, so it has failed

    def give_up(self) -> None:
        """The thread raises when it asks for more."""
        self._is_given_up = True

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """For the thread."""
        while True:
            try:
                batch = self._waiting.get(timeout=_LOOK_S)
            except queue.Empty:
                if self._is_given_up:
                    raise _GivenUpError from None
                continue
            if batch is None:
                return
            yield batch


def deal(
    batches: Iterable[pa.RecordBatch],
    column: str,
    shards: int,
    otherwise: int,
    stage: Callable[[int, Iterator[pa.RecordBatch]], Staged],
) -> dict[int, Staged]:
    """Have each row staged at the shard of its key, in order.

    ``column``: of the keys, strings or binaries; rows without a key go to the shard ``otherwise``.
    ``stage(shard, batches)``, which a thread calls for a shard that gets rows, returns what it
    staged.  Raises what it raised, and what ``batches`` raises; then no shard has all of its rows.
    """
    lanes: dict[int, _Lane[Staged]] = {}
    with ThreadPoolExecutor(shards, "shard") as threads:
        try:
            for batch in batches:
                for shard, part in _parts(batch, column, shards, otherwise):
                    if shard not in lanes:
                        lanes[shard] = _Lane(threads, stage, shard)
                    lanes[shard].put(part)
            for lane in lanes.values():
                lane.put(None)
            return {shard: lane.staged.result() for shard, lane in lanes.items()}
        finally:
            for lane in lanes.values():
                lane.give_up()


def _parts(
    batch: pa.RecordBatch, column: str, shards: int, otherwise: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    import pyarrow.compute as pc

    from pyqstore.codec import shard_column

    places = pc.fill_null(shard_column(batch.column(column), shards), otherwise)
    for shard in range(shards):
        part = batch.filter(pc.equal(places, shard))
        if part.num_rows > 0:
            yield shard, part

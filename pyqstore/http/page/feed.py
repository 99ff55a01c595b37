"""Figures once a second for stores with viewers, and those of the last five minutes.

One task samples for all viewers, and ends with the last of them.  Its memory is limited.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from anyio import CapacityLimiter, to_thread

from ...errors import Error
from ..context import Context
from ..sampler import View

__all__ = ["Feed", "History", "Point"]

INTERVAL_S = 1.0
_POINTS = 300
_VIEWERS_MAX = 64
_THREADS = 4  # a slow store occupies only these

Point = dict[str, float]


@dataclass
class History:
    """The figures of a store; points are numbered consecutively."""

    points: deque[Point] = field(default_factory=lambda: deque(maxlen=_POINTS))
    last: int = 0
    view: View | None = None

    def add(self, view: View) -> None:
        """Adds a point."""
        self.view = view
        self.points.append(_point(view))
        self.last += 1

    def since(self, number: int) -> list[Point]:
        """The points after the one with this number."""
        fresh = min(self.last - number, len(self.points))
        return list(self.points)[len(self.points) - fresh :]


class Feed:
    """Use it only in the server's event loop."""

    def __init__(self, context: Context) -> None:
        """``context``: its stores are sampled."""
        self._context = context
        self._viewers: Counter[str] = Counter()
        self._histories: dict[str, History] = {}
        self._task: asyncio.Task[None] | None = None
        self._turn = asyncio.Event()
        self._limiter: CapacityLimiter | None = None

    @property
    def limiter(self) -> CapacityLimiter:
        """The limit for threads that read stores for the page."""
        if self._limiter is None:
            self._limiter = CapacityLimiter(_THREADS)
        return self._limiter

    @property
    def is_full(self) -> bool:
        """Whether the number of viewers is at its limit."""
        return self._viewers.total() >= _VIEWERS_MAX

    @property
    def is_ending(self) -> bool:
        """Whether the server is ending."""
        return self._context.ending.is_set()

    @contextmanager
    def viewer(self, vhost: str) -> Iterator[None]:
        """Counts a viewer of the store of ``vhost`` during the block."""
        self._viewers[vhost] += 1
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            yield
        finally:
            self._viewers[vhost] -= 1
            if self._viewers[vhost] == 0:
                del self._viewers[vhost]
                self._histories.pop(vhost, None)

    async def look(self, vhost: str) -> History:
        """The current figures, sampled if there are none yet.  StoreClosed; KeyError."""
        history = self._histories.get(vhost)
        if history is None:
            view = await self._sample(vhost)
            history = self._histories.setdefault(vhost, History())
            if history.view is None:
                history.add(view)
        return history

    async def next_turn(self) -> None:
        """Returns when there are new figures, or the server ends."""
        if not self.is_ending:
            await self._turn.wait()

    async def _run(self) -> None:
        due = time.monotonic()
        while self._viewers and not self.is_ending:
            due = max(due + INTERVAL_S, time.monotonic())
            while (left := due - time.monotonic()) > 0 and not self.is_ending:
                await asyncio.sleep(min(left, 0.2))
            for vhost in list(self._viewers):
                await self._add(vhost)
            self._announce()
        self._announce()

    def _announce(self) -> None:
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()

    async def _add(self, vhost: str) -> None:
        try:
            view = await self._sample(vhost)
        except (Error, KeyError):  # its viewers are told when they ask
            self._histories.pop(vhost, None)
            return
        if vhost in self._viewers:
            self._histories.setdefault(vhost, History()).add(view)

    async def _sample(self, vhost: str) -> View:
        return await to_thread.run_sync(self._context.sampler.look, vhost, limiter=self.limiter)


def _point(view: View) -> Point:
    syncs = view.total("fdatasyncs")
    confirmed = view.total("messages_confirmed")
    return {
        "publish": view.total("messages_published"),
        "confirm": confirmed,
        "deliver": view.total("messages_delivered"),
        "ack": view.total("messages_acked"),
        "syncs": syncs,
        "grouped": confirmed / syncs if syncs > 0 else 0.0,
        "journal_bytes": view.total("bytes_journalled"),
    }

"""Rates: the counters of a store now, and a little earlier."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from threading import Event, Lock, Thread
from typing import Any

from .. import store as _store
from ..errors import Error, StoreClosed
from ..figures import DetailedStats
from .clients import QueueRow, queues_of

__all__ = ["INTERVAL_S", "Sample", "Sampler", "View", "added"]

INTERVAL_S = 1.0  # between two samples
_WINDOW = 6  # samples: rates are over the last five seconds, like RabbitMQ's
_FRESH_S = 0.25  # an older sample is not shown any more
_LEAST_S = 0.05  # closer samples have no rate
_REST = 10  # sampling thousands of queues takes longer: the pause is that many times as long
_IDLE_S = 30.0  # after that long without a viewer, sampling stops


@dataclass(frozen=True)
class Sample:
    """All counters of a store at one moment, and the lengths of its queues."""

    at: float
    """In seconds of ``time.monotonic``."""
    stats: DetailedStats
    rows: dict[str, QueueRow]
    """Queues by name."""

    @cached_property
    def of_queues(self) -> dict[str, int]:
        """The sums of the queues' counters, by name."""
        return added(self.stats.queues.values())

    @cached_property
    def of_exchanges(self) -> dict[str, int]:
        """The sums of the exchanges' counters, by name."""
        return added(self.stats.exchanges.values())

    @cached_property
    def ready(self) -> int:
        """The ready messages of all queues."""
        return sum(row.ready for row in self.rows.values())

    @cached_property
    def unacked(self) -> int:
        """The unacknowledged messages of all queues."""
        return sum(row.unacked for row in self.rows.values())


@dataclass(frozen=True)
class View:
    """Two samples of one store, to be compared: at first the same one twice."""

    now: Sample
    before: Sample

    @property
    def stats(self) -> DetailedStats:
        """The newer counters."""
        return self.now.stats

    def rate(self, now: float, before: float) -> float:
        """The rate from ``before`` to ``now``, per second."""
        seconds = self.now.at - self.before.at
        return round((now - before) / seconds, 3) if seconds >= _LEAST_S else 0.0

    def total(self, name: str) -> float:
        """The rate of a counter of the whole store, such as "fdatasyncs"."""
        return self.growth(self.now.stats[name], self.before.stats[name])

    def queue(self, name: str) -> dict[str, float]:
        """The rates of a queue's counters, by name; {} if there is no such queue."""
        return self._rates(self.now.stats.queues, self.before.stats.queues, name)

    def exchange(self, name: str) -> dict[str, float]:
        """The rates of an exchange's counters."""
        return self._rates(self.now.stats.exchanges, self.before.stats.exchanges, name)

    def channel(self, number: int) -> dict[str, float]:
        """The rates of a channel's counters, by its number in the store."""
        return self._rates(self.now.stats.channels, self.before.stats.channels, number)

    def lengths(self, name: str) -> tuple[float, float]:
        """The growth of a queue's ready and unacked messages, per second; negative if they
        decrease."""
        now, before = self.now.rows.get(name), self.before.rows.get(name)
        if now is None or before is None:
            return 0.0, 0.0
        return self.rate(now.ready, before.ready), self.rate(now.unacked, before.unacked)

    def growth(self, now: float, before: float) -> float:
        """The rate of a counter.  A counter that was reset, as that of a new queue of the same
        name, has the rate 0."""
        return self.rate(now, before) if now > before else 0.0

    def _rates(
        self, now: Mapping[Any, dict[str, int]], before: Mapping[Any, dict[str, int]], key: Any
    ) -> dict[str, float]:
        earlier = before.get(key, {})
        counts = now.get(key, {})
        return {name: self.growth(count, earlier.get(name, 0)) for name, count in counts.items()}


def added(many: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sums by name."""
    sums: dict[str, int] = {}
    for each in many:
        for name, value in each.items():
            sums[name] = sums.get(name, 0) + value
    return sums


class Sampler:
    """Samples the stores once a second while there are viewers, in a thread of its own."""

    def __init__(self, stores: Callable[[], Mapping[str, _store.Store]]) -> None:
        """``stores``: returns the current stores, by virtual host."""
        self._stores = stores
        self._samples: dict[str, deque[Sample]] = {}
        self._newest: dict[str, Sample] = {}
        self._lock = Lock()
        self._looked = 0.0
        self._thread: Thread | None = None
        self._end = Event()

    def look(self, vhost: str) -> View:
        """The current counters of a store, and their rates.

        Any thread may call it.  StoreClosed, also if the virtual host was deleted."""
        store = self._stores().get(vhost)
        if store is None:
            raise StoreClosed(f"vhost {vhost!r} is gone")
        with self._lock:
            self._looked = time.monotonic()
            newest = self._newest.get(vhost)
            if newest is None or self._looked - newest.at > _FRESH_S:
                newest = self._newest[vhost] = _sample(store)
            kept = self._samples.setdefault(vhost, deque(maxlen=_WINDOW))
            if not kept:
                kept.append(newest)
            if self._thread is None and not self._end.is_set():
                self._thread = Thread(target=self._run, name="pyqstore-sampler", daemon=True)
                self._thread.start()
            return View(newest, kept[0])

    def forget_newest(self) -> None:
        """Called after a change, so that the next viewer sees it."""
        with self._lock:
            self._newest.clear()

    def close(self) -> None:
        """Stops sampling; returns when the stores are not in use any more."""
        self._end.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        wait_s = INTERVAL_S
        while not self._end.wait(wait_s):
            with self._lock:
                if time.monotonic() - self._looked > _IDLE_S:
                    self._thread = None
                    self._samples.clear()
                    self._newest.clear()
                    return
            began = time.monotonic()
            self._sample_all()
            wait_s = max(INTERVAL_S, _REST * (time.monotonic() - began))

    def _sample_all(self) -> None:
        stores = self._stores()
        for name, store in stores.items():
            try:
                taken = _sample(store)
            except Error:  # it is closed, or has failed: callers are told
                continue
            with self._lock:
                self._samples.setdefault(name, deque(maxlen=_WINDOW)).append(taken)
                self._newest[name] = taken
        with self._lock:
            for name in self._samples.keys() - stores.keys():
                del self._samples[name]
                self._newest.pop(name, None)


def _sample(store: _store.Store) -> Sample:
    rows = {row.name: row for row in queues_of(store)}
    return Sample(time.monotonic(), store.stats(detail=True), rows)

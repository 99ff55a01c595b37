"""Metrics of stores for OpenTelemetry (``pyqstore[opentelemetry]``).

Nothing is asked before the reader of the metrics asks: a store that is observed costs nothing
meanwhile.  For Prometheus, ``pyqstore serve --http`` and ``Store.serve_page`` have ``/metrics``.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

try:
    from opentelemetry import metrics
except ModuleNotFoundError as _missing:
    raise ModuleNotFoundError(
        "pyqstore.metering needs OpenTelemetry: pip install 'pyqstore[opentelemetry]'"
    ) from _missing

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from .errors import Error
from .figures import COUNTERS, Stats
from .listings import QueueRow, printable, queues_of
from .store import Store

__all__ = ["observe", "unobserve"]

_METER = "pyqstore"
_STORE = "pyqstore.store"
_QUEUE = "messaging.destination.name"
_Attributes: TypeAlias = dict[str, str | float]
_Numbers: TypeAlias = Iterable[tuple[_Attributes, float]]

# By name: unit, what it says, and how it is read.
_GAUGES: dict[str, tuple[str, str, Callable[[Stats], float]]] = {
    "pyqstore.memory": ("By", "Memory of messages", lambda stats: stats.ram_bytes),
    "pyqstore.consumers.slow": (
        "{consumer}",
        "Consumers that acknowledge nothing while their queues grow",
        lambda stats: stats.slow_consumers,
    ),
    "pyqstore.journal.pending": (
        "By",
        "Appended to the journal, and not durable yet",
        lambda stats: stats.appended_lsn - stats.durable_lsn,
    ),
    "pyqstore.journal.since_checkpoint": (
        "By",
        "Journal that an open after a crash would replay",
        lambda stats: stats.durable_lsn - stats.checkpoint_lsn,
    ),
    "pyqstore.message_store": (
        "By",
        "Files of the message store",
        lambda stats: stats.message_bytes_total,
    ),
    "pyqstore.message_store.live": (
        "By",
        "What of them is of messages in queues",
        lambda stats: stats.message_bytes_live,
    ),
    "pyqstore.commit.running": (
        "s",
        "How long the commit under way has waited for the disk",
        lambda stats: stats.commit_running_ms / 1000,
    ),
    "pyqstore.failed": (
        "1",
        "Whether an input/output error stopped the store",
        lambda stats: float(stats.failed),
    ),
}
_LATENCIES = {
    "pyqstore.commit.latency": ("commit_latency_us", "Write and fdatasync of a commit"),
    "pyqstore.confirm.latency": (
        "confirm_latency_us",
        "From the append of a message until it is durable",
    ),
}
_QUANTILES = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
_QUEUES: dict[str, tuple[str, str, Callable[[QueueRow], float]]] = {
    "pyqstore.queue.ready": ("{message}", "Messages that are ready", lambda row: row.ready),
    "pyqstore.queue.unacked": (
        "{message}",
        "Messages delivered and not acknowledged",
        lambda row: row.unacked,
    ),
    "pyqstore.queue.delayed": ("{message}", "Messages not due yet", lambda row: row.delayed),
    "pyqstore.queue.consumers": ("{consumer}", "Consumers", lambda row: row.consumers),
    "pyqstore.queue.memory": ("By", "Memory of a queue's messages", lambda row: row.ram_bytes),
}


class _Instruments:
    """Those of one provider, and the stores that they tell of: a name may be there once only."""

    def __init__(self, provider: MeterProvider) -> None:
        # A leaf: callbacks take it under a lock of the SDK, which instruments are made under, too.
        self._mutex = threading.Lock()
        self._stores: weakref.WeakKeyDictionary[Store, bool] = weakref.WeakKeyDictionary()
        meter = provider.get_meter(_METER)
        for key, says in COUNTERS.items():
            name, unit = _named(key)
            callbacks = [self._each(_counter(key))]
            meter.create_observable_counter(name, callbacks, unit, says)
        for name, (unit, says, read) in _GAUGES.items():
            meter.create_observable_gauge(name, [self._each(_gauge(read))], unit, says)
        for name, (key, says) in _LATENCIES.items():
            meter.create_observable_gauge(name, [self._each(_latency(key))], "s", says)
        for name, (unit, says, of) in _QUEUES.items():
            callbacks = [self._each(_of_queues(of), of_queues=True)]
            meter.create_observable_up_down_counter(name, callbacks, unit, says)

    def add(self, store: Store, of_queues: bool) -> None:
        with self._mutex:
            self._stores[store] = of_queues

    def remove(self, store: Store) -> None:
        with self._mutex:
            self._stores.pop(store, None)

    def _each(
        self, read: Callable[[Store], _Numbers], *, of_queues: bool = False
    ) -> Callable[[CallbackOptions], Iterator[Observation]]:
        def callback(_: CallbackOptions) -> Iterator[Observation]:
            with self._mutex:
                stores = [store for store, wants in self._stores.items() if wants or not of_queues]
            for store in stores:
                try:
                    numbers = list(read(store))
                except Error:  # it is closed, or has just failed: the others are told
                    continue
                for attributes, number in numbers:
                    yield Observation(number, {_STORE: store.path, **attributes})

        return callback


_mutex = threading.Lock()  # of what is below; no callback takes it
_instruments: weakref.WeakKeyDictionary[MeterProvider, _Instruments] = weakref.WeakKeyDictionary()


def observe(
    store: Store, *, queues: bool = True, meter_provider: MeterProvider | None = None
) -> Store:
    """Have the provider, the global one if none is given, read the store's metrics until the store
    is closed or :func:`unobserve`.  Returns the store.

    Counters are what ``Store.stats`` counts since the store was opened: ``messages_published`` is
    ``pyqstore.messages.published``.  Gauges tell of memory, journal, message store and latencies.
    The attribute ``pyqstore.store`` is the store's path.  ``queues``: also what is in each queue,
    by ``messaging.destination.name``.
    """
    provider = meter_provider or metrics.get_meter_provider()
    with _mutex:
        there = _instruments.get(provider)
        if there is None:
            there = _instruments[provider] = _Instruments(provider)
    there.add(store, queues)
    return store


def unobserve(store: Store) -> None:
    """Undo :func:`observe`."""
    with _mutex:
        all_of_them = list(_instruments.values())
    for each in all_of_them:
        each.remove(store)


def _named(key: str) -> tuple[str, str]:
    """A counter's name here, and its unit."""
    kind, _, rest = key.partition("_")
    unit = {"messages": "{message}", "bytes": "By"}.get(kind, "1")
    return f"{_METER}.{kind}.{rest}" if rest else f"{_METER}.{kind}", unit


def _counter(key: str) -> Callable[[Store], _Numbers]:
    return lambda store: [({}, store.stats()[key])]


def _gauge(read: Callable[[Stats], float]) -> Callable[[Store], _Numbers]:
    return lambda store: [({}, read(store.stats()))]


def _latency(key: str) -> Callable[[Store], _Numbers]:
    def read(store: Store) -> _Numbers:
        latency = store.stats()[key]
        return [({"quantile": part}, latency[name] / 1e6) for name, part in _QUANTILES]

    return read


def _of_queues(read: Callable[[QueueRow], float]) -> Callable[[Store], _Numbers]:
    return lambda store: [({_QUEUE: printable(row.name)}, read(row)) for row in queues_of(store)]


def _after_fork() -> None:
    """A thread that had the mutex is not in the child."""
    global _mutex
    _mutex = threading.Lock()
    for each in _instruments.values():
        each._mutex = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)

"""Metrics for Prometheus: with the names of RabbitMQ's plugin for the same values, and further ones
of the store."""

from __future__ import annotations

import os
import resource as _resource
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    UnknownMetricFamily,
)
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from .. import store as _store
from ..archive_reports import Archived, archive_of
from ..errors import Error
from ..figures import COUNTERS, DetailedStats
from ..listings import printable
from ..shovelling.known import shovels_of
from ..shovelling.report import Shovelled
from .api.versions import RABBITMQ
from .auth import Login
from .clients import (
    ChannelRow,
    ConnectionRow,
    QueueRow,
    channels_of,
    connections_of,
    consumers_of,
    queues_of,
)
from .context import Context
from .metric_names import (
    ARCHIVE_COUNTERS,
    ARCHIVE_GAUGES,
    CHANNEL_COUNTERS,
    CHANNEL_GAUGES,
    CHURN,
    GLOBAL_CHANNEL_COUNTERS,
    GLOBAL_COUNTERS,
    OBJECTS,
    OWN_COUNTERS,
    OWN_GAUGES,
    QUEUE_GAUGES,
    SHOVEL_COUNTERS,
)
from .node import NODE

__all__ = ["routes"]

_Values = Sequence[tuple[Sequence[str], float]]
_PROTOCOL, _AMQP = ("protocol",), ("amqp091",)
_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def routes(context: Context) -> Sequence[BaseRoute]:
    """The routes of this module: sums, and values for each queue, channel and connection."""
    return [
        _route("/metrics", context, per_object=False),
        _route("/metrics/per-object", context, per_object=True),
    ]


def _route(path: str, context: Context, *, per_object: bool) -> Route:
    registry = CollectorRegistry()
    registry.register(_Stores(context, per_object))

    async def answer(request: Request) -> Response:
        login: Login = request.state.login
        login.require("monitoring")
        return Response(await run_in_threadpool(generate_latest, registry), media_type=_TYPE)

    return Route(path, answer)


@dataclass(frozen=True)
class _Seen:
    """A store's numbers at one moment."""

    vhost: str
    stats: DetailedStats
    queues: list[QueueRow]
    channels: list[ChannelRow]
    connections: list[ConnectionRow]
    objects: Mapping[str, int]
    shovels: Mapping[str, Shovelled]
    archive: Archived | None

    @classmethod
    def of(cls, vhost: str, store: _store.Store) -> _Seen:
        queues, channels = list(queues_of(store)), channels_of(store)
        connections = connections_of(store)
        objects = {
            "connections": len(connections),
            "channels": len(channels),
            "consumers": len(consumers_of(store)),
            "queues": len(queues),
        }
        stats = store.stats(detail=True)
        shovels, archive = shovels_of(store), archive_of(store)
        return cls(vhost, stats, queues, channels, connections, objects, shovels, archive)


class _Stores(Collector):
    """All stores of a context."""

    def __init__(self, context: Context, per_object: bool) -> None:
        self._context = context
        self._per_object = per_object

    def describe(self) -> list[Metric]:
        """Empty: stores are read only on request."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Called by Prometheus's client."""
        seen: list[_Seen] = []
        for vhost, store in self._context.stores().items():
            try:
                seen.append(_Seen.of(vhost, store))
            except Error:  # it has failed or is being closed: the others are still shown
                continue
        yield from _of_server()
        yield from _of_objects(seen)
        yield from _of_global(seen)
        yield from self._of_queues(seen)
        yield from self._of_channels(seen)
        yield from _of_process(self._context, seen)
        yield from _of_stores(self._context, seen)

    def _of_queues(self, seen: list[_Seen]) -> Iterator[Metric]:
        rows = [((each.vhost, row.name), row) for each in seen for row in each.queues]
        for name, (text, value) in QUEUE_GAUGES.items():
            labels = ("vhost", "queue")
            yield self._gauge(name, text, labels, [(key, value(row)) for key, row in rows])
        published = [
            ((each.vhost, queue, each.vhost, exchange), counts["publish"])
            for each in seen
            for exchange, queues in each.stats.routes.items()
            for queue, counts in queues.items()
        ]
        yield self._counter(
            "rabbitmq_queue_messages_published",
            "Messages published to queues",
            ("queue_vhost", "queue", "exchange_vhost", "exchange"),
            published,
        )

    def _of_channels(self, seen: list[_Seen]) -> Iterator[Metric]:
        rows = [(_key(each.vhost, row.number), row) for each in seen for row in each.channels]
        for name, (text, value) in CHANNEL_GAUGES.items():
            yield self._gauge(name, text, ("channel",), [(key, value(row)) for key, row in rows])
        counts = [
            (_key(each.vhost, number), counted)
            for each in seen
            for number, counted in each.stats.channels.items()
        ]
        for name, (text, counter) in CHANNEL_COUNTERS.items():
            values = [(key, counted[counter]) for key, counted in counts]
            yield self._counter(name, text, ("channel",), values)
        connections = [
            (_key(each.vhost, row.number), row.channels)
            for each in seen
            for row in each.connections
        ]
        text = "Channels on a connection"
        yield self._gauge("rabbitmq_connection_channels", text, ("connection",), connections)

    def _gauge(self, name: str, text: str, labels: Sequence[str], values: _Values) -> Metric:
        return self._family(GaugeMetricFamily, name, text, labels, values)

    def _counter(self, name: str, text: str, labels: Sequence[str], values: _Values) -> Metric:
        return self._family(CounterMetricFamily, name, text, labels, values)

    def _family(
        self,
        make: Callable[..., Any],
        name: str,
        text: str,
        labels: Sequence[str],
        values: _Values,
    ) -> Metric:
        """Only the sum, or a value for each object."""
        if not self._per_object:
            summed: Metric = make(name, text, value=sum(value for _, value in values))
            return summed
        family = make(name, text, labels=labels)
        for key, value in values:
            family.add_metric([printable(each) for each in key], value)
        each_alone: Metric = family
        return each_alone


def _key(vhost: str, number: int) -> tuple[str]:
    """A channel or a connection, by its number in its store."""
    return (f"{vhost} {number}",)


def _of_server() -> Iterator[Metric]:
    """The labels that dashboards join with other metrics."""
    labels = ("rabbitmq_version", "product_name", "product_version")
    build = UnknownMetricFamily("rabbitmq_build_info", "Whose ways these are", labels=labels)
    build.add_metric((RABBITMQ, "pyqstore", RABBITMQ), 1)
    yield build
    names = ("rabbitmq_node", "rabbitmq_cluster", "rabbitmq_cluster_permanent_id")
    identity = UnknownMetricFamily("rabbitmq_identity_info", "Node and cluster", labels=names)
    identity.add_metric((NODE, NODE, NODE), 1)
    yield identity


def _of_objects(seen: list[_Seen]) -> Iterator[Metric]:
    for kind, text in OBJECTS.items():
        total = sum(each.objects[kind] for each in seen)
        yield GaugeMetricFamily(f"rabbitmq_{kind}", text, value=total)
    for name, counter in CHURN.items():
        total = sum(each.stats[counter] for each in seen)
        yield CounterMetricFamily(name, COUNTERS[counter], value=total)


def _of_global(seen: list[_Seen]) -> Iterator[Metric]:
    """Values since the stores were opened, and sums over channels."""
    sums = {
        name: (COUNTERS[counter], sum(each.stats[counter] for each in seen))
        for name, counter in GLOBAL_COUNTERS.items()
    }
    sums |= {
        name: (text, sum(each.stats.all_channels[counter] for each in seen))
        for name, (text, counter) in GLOBAL_CHANNEL_COUNTERS.items()
    }
    for name, (text, value) in sums.items():
        family = CounterMetricFamily(name, text, labels=_PROTOCOL)
        family.add_metric(_AMQP, value)
        yield family
    publishers = sum(
        counts["publish"] > 0 for each in seen for counts in each.stats.channels.values()
    )
    for name, text, value in (
        ("rabbitmq_global_publishers", "Channels that have published", publishers),
        (
            "rabbitmq_global_consumers",
            "Consumers",
            sum(each.objects["consumers"] for each in seen),
        ),
    ):
        gauge = GaugeMetricFamily(name, text, labels=_PROTOCOL)
        gauge.add_metric(_AMQP, value)
        yield gauge


def _of_process(context: Context, seen: list[_Seen]) -> Iterator[Metric]:
    most, _ = _resource.getrlimit(_resource.RLIMIT_NOFILE)
    yield _gauge("rabbitmq_process_max_fds", "Descriptors that the process may have", most)
    text = "Connections that it may have, as far as descriptors go"
    yield _gauge("rabbitmq_process_max_tcp_sockets", text, most)
    clients = sum(row.client != 0 for each in seen for row in each.connections)
    yield _gauge("rabbitmq_process_open_tcp_sockets", "Connections of clients", clients)
    if os.path.isdir("/proc/self/fd"):
        used = len(os.listdir("/proc/self/fd"))
        yield _gauge("rabbitmq_process_open_fds", "Descriptors it has", used)
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
        size = pages * os.sysconf("SC_PAGE_SIZE")
        name = "rabbitmq_process_resident_memory_bytes"
        yield _gauge(name, "Memory of the process", size)
        text = "The same with the budgets of all stores used up: then publishers are held up"
        yield _gauge("rabbitmq_resident_memory_limit_bytes", text, size + _unused(context, seen))
    if os.path.isdir(context.store.directory):
        free = shutil.disk_usage(context.store.directory).free
        name = "rabbitmq_disk_space_available_bytes"
        yield _gauge(name, "Free space where the store is", free)
        text = "Free space at which publishers are held up"
        yield _gauge("rabbitmq_disk_space_available_limit_bytes", text, 0)


def _unused(context: Context, seen: list[_Seen]) -> int:
    """The unused parts of the stores' memory budgets."""
    stores = context.stores()
    return sum(
        max(stores[each.vhost].options["memory_budget"] - each.stats.ram_bytes, 0)
        for each in seen
        if each.vhost in stores
    )


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _of_stores(context: Context, seen: list[_Seen]) -> Iterator[Metric]:
    """Metrics that RabbitMQ does not have."""
    for name, counter in OWN_COUNTERS.items():
        family = CounterMetricFamily(name, COUNTERS[counter], labels=("vhost",))
        for each in seen:
            family.add_metric((printable(each.vhost),), each.stats[counter])
        yield family
    for name, (text, value) in OWN_GAUGES.items():
        gauge = GaugeMetricFamily(name, text, labels=("vhost",))
        for each in seen:
            gauge.add_metric((printable(each.vhost),), value(each.stats))
        yield gauge
    budget = GaugeMetricFamily(
        "pyqstore_memory_budget_bytes", "What bounds pyqstore_memory_bytes", labels=("vhost",)
    )
    stores = context.stores()
    for each in seen:
        if each.vhost in stores:
            limit = stores[each.vhost].options["memory_budget"]
            budget.add_metric((printable(each.vhost),), limit)
    yield budget
    yield from _latencies(seen)
    yield from _of_shovels(seen)
    yield from _of_archives(seen)


def _of_shovels(seen: list[_Seen]) -> Iterator[Metric]:
    """For running shovels, since the start of each."""
    labels = ("vhost", "shovel")
    for name, (text, value) in SHOVEL_COUNTERS.items():
        family = CounterMetricFamily(name, text, labels=labels)
        for each in seen:
            for shovel, report in each.shovels.items():
                family.add_metric((printable(each.vhost), printable(shovel)), value(report))
        yield family
    text = "Messages that wait in the source of a shovel, about"
    waiting = GaugeMetricFamily("pyqstore_shovel_waiting_messages", text, labels=labels)
    for each in seen:
        for shovel, report in each.shovels.items():
            if report.lag is not None:
                waiting.add_metric((printable(each.vhost), printable(shovel)), report.lag)
    yield waiting


def _of_archives(seen: list[_Seen]) -> Iterator[Metric]:
    """For running archives, since the start of each."""
    families: list[tuple[CounterMetricFamily | GaugeMetricFamily, Callable[[Archived], float]]] = [
        (CounterMetricFamily(name, text, labels=("vhost",)), value)
        for name, (text, value) in ARCHIVE_COUNTERS.items()
    ]
    families += [
        (GaugeMetricFamily(name, text, labels=("vhost",)), value)
        for name, (text, value) in ARCHIVE_GAUGES.items()
    ]
    for family, value in families:
        for each in seen:
            if each.archive is not None:
                family.add_metric((printable(each.vhost),), value(each.archive))
        yield family


def _latencies(seen: list[_Seen]) -> Iterator[Metric]:
    for kind, text in (
        ("commit", "Write and fdatasync of a commit"),
        ("confirm", "From the append of a message until it is durable"),
    ):
        labels = ("vhost", "quantile")
        family = GaugeMetricFamily(f"pyqstore_{kind}_latency_seconds", text, labels=labels)
        for each in seen:
            latency = each.stats[f"{kind}_latency_us"]
            for quantile, part in (("0.5", "p50"), ("0.99", "p99"), ("1", "max")):
                family.add_metric((printable(each.vhost), quantile), latency[part] / 1e6)
        yield family

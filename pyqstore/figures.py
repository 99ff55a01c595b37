"""What a store tells of itself: dataclasses that are dicts as well."""

from __future__ import annotations

from dataclasses import Field, asdict, dataclass
from typing import Any, ClassVar, Literal, NoReturn

__all__ = [
    "COUNTERS",
    "DetailedStats",
    "Figures",
    "Latency",
    "QueueStatus",
    "Stats",
    "StreamStatus",
]

COUNTERS = {
    "messages_published": "Messages published",
    "messages_confirmed": "Messages confirmed",
    "messages_routed": "Copies that queues took",
    "messages_returned": "Mandatory messages that no queue took",
    "messages_delivered": "Messages delivered",
    "messages_acked": "Messages acknowledged",
    "messages_requeued": "Messages put back",
    "messages_expired": "Messages that expired",
    "messages_dead_lettered": "Messages that were dead-lettered",
    "messages_refused": "Messages refused by queues that were full",
    "messages_paged_out": "Messages that went from memory to the index",
    "messages_paged_in": "Messages that were read from the index",
    "commits": "Writes and syncs of the journal",
    "fdatasyncs": "Calls of fdatasync",
    "commit_stalls": "Commits that took 30 s or more",
    "checkpoints": "Checkpoints made",
    "segments_written": "Files of the index begun",
    "bytes_journalled": "Bytes written to journal files",
    "bytes_stored": "Bytes written to the message store",
    "bytes_checkpointed": "Bytes written by checkpoints",
    "inbox_adopted": "Files of other processes adopted",
    "inbox_refused": "Files of other processes refused",
    "messages_received_confirm": "Messages published in confirm mode",
    "connections_opened": "Connections opened",
    "connections_closed": "Connections closed",
    "channels_opened": "Channels opened",
    "channels_closed": "Channels closed",
    "queues_declared": "Declarations of queues that succeeded, but for passive ones",
    "queues_created": "Queues created",
    "queues_deleted": "Queues deleted",
}
"""What of :class:`Stats` never becomes less while a store is open, and what it counts."""


class Figures(dict[str, Any]):
    """A dataclass that is a dict as well: ``stats.commits`` is ``stats["commits"]``.

    Read only.  As a dict it goes where dicts go, into ``json.dumps`` for one.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]  # of the classes below

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            dict.__setitem__(self, name, getattr(self, name))

    def to_dict(self) -> dict[str, Any]:
        """The same as a plain dict, and so the figures in it."""
        return asdict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _of, (type(self), dict(self))

    def _refuse(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is read only; to_dict() gives a dict of your own")

    def __setitem__(self, key: str, value: Any) -> NoReturn:
        self._refuse()

    def __delitem__(self, key: str) -> NoReturn:
        self._refuse()

    def __ior__(self, value: Any) -> NoReturn:  # type: ignore[misc]
        self._refuse()

    def clear(self) -> NoReturn:
        """Raises TypeError: figures can only be read."""
        self._refuse()

    def pop(self, *_arguments: Any) -> NoReturn:
        """Raises TypeError: figures can only be read."""
        self._refuse()

    def popitem(self) -> NoReturn:
        """Raises TypeError: figures can only be read."""
        self._refuse()

    def setdefault(self, *_arguments: Any) -> NoReturn:
        """Raises TypeError: figures can only be read."""
        self._refuse()

    def update(self, *_arguments: Any, **_named: Any) -> NoReturn:
        """Raises TypeError: figures can only be read."""
        self._refuse()


def _of(kind: type[Figures], values: dict[str, Any]) -> Figures:
    return kind(**values)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueueStatus(Figures):
    """What ``Store.queue_status`` tells: see there."""

    messages_ready: int
    messages_unacked: int
    messages_delayed: int
    messages_passed: int
    consumers: int
    slow_consumers: int
    alpha: int
    beta: int
    gamma: int
    delta: int
    q1: int
    q2: int
    delta_len: int
    q3: int
    q4: int
    ram_bytes: int
    disk_bytes: int
    target_ram_count: float
    ingress_rate: float
    egress_rate: float
    durable: bool
    exclusive: bool
    auto_delete: bool
    lazy: bool
    stream: bool
    first: int
    next: int
    segments: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamStatus(Figures):
    """What ``Stream.status`` tells: offsets ``first`` to ``next``, without the latter, of which
    readers get those below ``durable``, as others are on their way to the disk; when the last
    message was published, in us since 1970; files and bytes; ``flushed``, below which
    messages are in files; how many groups have committed an offset; ``id``, which no other stream
    of the store ever has, 0 where a server does not tell it."""

    first: int
    next: int
    durable: int
    last_time_us: int
    segments: int
    disk_bytes: int
    ram_bytes: int
    flushed: int
    cursors: int
    id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Latency(Figures):
    """Microseconds."""

    p50: int
    p99: int
    max: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stats(Figures):
    """What ``Store.stats`` tells: see there."""

    durable_lsn: int
    appended_lsn: int
    commits: int
    fdatasyncs: int
    bytes_journalled: int
    bytes_stored: int
    bytes_checkpointed: int
    messages_published: int
    messages_routed: int
    messages_confirmed: int
    messages_returned: int
    messages_delivered: int
    messages_acked: int
    messages_requeued: int
    messages_expired: int
    messages_dead_lettered: int
    messages_refused: int
    ram_bytes: int
    checkpoints: int
    checkpoint_lsn: int
    segments_written: int
    messages_paged_out: int
    messages_paged_in: int
    message_files: int
    message_bytes_live: int
    message_bytes_total: int
    sync: Literal["fdatasync", "none"]
    failed: bool
    recovered_lsn: int
    recovered_messages: int
    recovered_records: int
    recovered_bytes: int
    torn_bytes: int
    lost_ranges: int
    lost_bytes: int
    ignored_arguments: int
    lost_segments: int
    lost_messages: int
    recovered_queues: int
    commit_running_ms: int
    commit_stalls: int
    slow_consumers: int
    inbox_adopted: int
    inbox_refused: int
    inbox_failing: int
    inbox_adopting: bool
    messages_received_confirm: int
    connections_opened: int
    connections_closed: int
    channels_opened: int
    channels_closed: int
    queues_declared: int
    queues_created: int
    queues_deleted: int
    inbox_error: str
    commit_latency_us: Latency
    confirm_latency_us: Latency
    recovery_ms: float
    clock_ahead_s: float
    filesystem: str
    filesystem_kind: Literal["local", "volatile", "network", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DetailedStats(Stats):
    """What ``Store.stats(detail=True)`` tells: see there."""

    channels: dict[int, dict[str, int]]
    exchanges: dict[str, dict[str, int]]
    queues: dict[str, dict[str, int]]
    routes: dict[str, dict[str, dict[str, int]]]
    all_channels: dict[str, int]
    connections: dict[int, dict[str, int]]

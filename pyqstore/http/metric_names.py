"""The names of metrics, and the numbers of a store that they show."""

from __future__ import annotations

from collections.abc import Callable

from ..archive_reports import Archived
from ..figures import COUNTERS, Stats
from ..shovelling.report import Shovelled
from .clients import ChannelRow, QueueRow

__all__ = [
    "ARCHIVE_COUNTERS",
    "ARCHIVE_GAUGES",
    "CHANNEL_COUNTERS",
    "CHANNEL_GAUGES",
    "CHURN",
    "GLOBAL_CHANNEL_COUNTERS",
    "GLOBAL_COUNTERS",
    "OBJECTS",
    "OWN_COUNTERS",
    "OWN_GAUGES",
    "QUEUE_GAUGES",
    "SHOVEL_COUNTERS",
]

OBJECTS = {
    "connections": "Connections that are open",
    "channels": "Channels that are open",
    "consumers": "Consumers",
    "queues": "Queues",
}

# Opened and closed objects: the name without "_total", and the number of stores.
CHURN = {
    f"rabbitmq_{name}": name
    for name in (
        "connections_opened",
        "connections_closed",
        "channels_opened",
        "channels_closed",
        "queues_declared",
        "queues_created",
        "queues_deleted",
    )
}

QUEUE_GAUGES: dict[str, tuple[str, Callable[[QueueRow], float]]] = {
    "rabbitmq_queue_messages_ready": ("Messages that are ready", lambda row: row.ready),
    "rabbitmq_queue_messages_unacked": (
        "Messages delivered and not yet acknowledged",
        lambda row: row.unacked,
    ),
    "rabbitmq_queue_messages": (
        "Messages ready and unacknowledged",
        lambda row: row.ready + row.unacked,
    ),
    "rabbitmq_queue_consumers": ("Consumers of a queue", lambda row: row.consumers),
    "pyqstore_queue_messages_delayed": ("Messages not due yet", lambda row: row.delayed),
    "pyqstore_queue_memory_bytes": ("Memory of a queue's messages", lambda row: row.ram_bytes),
}

CHANNEL_GAUGES: dict[str, tuple[str, Callable[[ChannelRow], float]]] = {
    "rabbitmq_channel_consumers": ("Consumers on a channel", lambda row: row.consumers),
    "rabbitmq_channel_messages_unacked": (
        "Messages delivered and not yet acknowledged",
        lambda row: row.unacked,
    ),
    "rabbitmq_channel_messages_unconfirmed": (
        "Messages published and not yet confirmed",
        lambda row: row.unconfirmed,
    ),
    "rabbitmq_channel_messages_uncommitted": (
        "Messages of an open transaction",
        lambda row: row.messages_uncommitted,
    ),
    "rabbitmq_channel_acks_uncommitted": (
        "Acknowledgements of an open transaction",
        lambda row: row.acks_uncommitted,
    ),
    "rabbitmq_consumer_prefetch": ("Prefetch of a consumer", lambda row: row.prefetch),
    "rabbitmq_channel_prefetch": (
        "Prefetch of all consumers of a channel",
        lambda row: row.prefetch_channel,
    ),
}

# For open channels: the name without "_total", the help text, and the counter.
CHANNEL_COUNTERS = {
    "rabbitmq_channel_messages_published": ("Messages published", "publish"),
    "rabbitmq_channel_messages_confirmed": ("Messages confirmed", "confirm"),
    "rabbitmq_channel_messages_unroutable_returned": (
        "Mandatory messages that no queue took",
        "return_unroutable",
    ),
    "rabbitmq_channel_messages_unroutable_dropped": (
        "Other messages that no queue took",
        "drop_unroutable",
    ),
    "rabbitmq_channel_get_ack": ("Messages that a get took, to be acknowledged", "get"),
    "rabbitmq_channel_get": ("Messages that a get took, acknowledged with it", "get_no_ack"),
    "rabbitmq_channel_get_empty": ("Gets that found nothing", "get_empty"),
    "rabbitmq_channel_messages_delivered_ack": (
        "Messages delivered to consumers that acknowledge",
        "deliver",
    ),
    "rabbitmq_channel_messages_delivered": (
        "Messages delivered to consumers that do not",
        "deliver_no_ack",
    ),
    "rabbitmq_channel_messages_redelivered": ("Messages delivered once more", "redeliver"),
    "rabbitmq_channel_messages_acked": ("Messages acknowledged", "ack"),
}

# For stores, which continue when a channel is closed: the name without "_total", and the number.
GLOBAL_COUNTERS = {
    "rabbitmq_global_messages_received": "messages_published",
    "rabbitmq_global_messages_received_confirm": "messages_received_confirm",
    "rabbitmq_global_messages_confirmed": "messages_confirmed",
    "rabbitmq_global_messages_routed": "messages_routed",
    "rabbitmq_global_messages_unroutable_returned": "messages_returned",
    "rabbitmq_global_messages_delivered": "messages_delivered",
    "rabbitmq_global_messages_acknowledged": "messages_acked",
}

# Sums over all channels of a store, closed ones included, of these counters.
GLOBAL_CHANNEL_COUNTERS = {
    "rabbitmq_global_messages_unroutable_dropped": (
        "Other messages that no queue took",
        "drop_unroutable",
    ),
    "rabbitmq_global_messages_delivered_consume_manual_ack": (
        "Messages delivered to consumers that acknowledge",
        "deliver",
    ),
    "rabbitmq_global_messages_delivered_consume_auto_ack": (
        "Messages delivered to consumers that do not",
        "deliver_no_ack",
    ),
    "rabbitmq_global_messages_delivered_get_manual_ack": (
        "Messages that a get took, to be acknowledged",
        "get",
    ),
    "rabbitmq_global_messages_delivered_get_auto_ack": (
        "Messages that a get took, acknowledged with it",
        "get_no_ack",
    ),
    "rabbitmq_global_messages_get_empty": ("Gets that found nothing", "get_empty"),
    "rabbitmq_global_messages_redelivered": ("Messages delivered once more", "redeliver"),
}

_RENAMED = {
    "bytes_journalled": "journal_bytes_written",
    "bytes_stored": "message_store_bytes_written",
    "bytes_checkpointed": "checkpoint_bytes_written",
}

# Like GLOBAL_COUNTERS: numbers that RabbitMQ does not have.
OWN_COUNTERS = {
    f"pyqstore_{_RENAMED.get(name, name)}": name
    for name in COUNTERS
    if name not in (*GLOBAL_COUNTERS.values(), *CHURN.values())
}

OWN_GAUGES: dict[str, tuple[str, Callable[[Stats], float]]] = {
    "pyqstore_memory_bytes": (
        "Memory of messages, and of what is kept of them",
        lambda stats: stats.ram_bytes,
    ),
    "pyqstore_slow_consumers": (
        "Consumers that acknowledge nothing while their queues grow",
        lambda stats: stats.slow_consumers,
    ),
    "pyqstore_journal_durable_bytes": (
        "Position of the journal up to which everything is durable",
        lambda stats: stats.durable_lsn,
    ),
    "pyqstore_journal_pending_bytes": (
        "Bytes appended to the journal that are not durable yet",
        lambda stats: stats.appended_lsn - stats.durable_lsn,
    ),
    "pyqstore_journal_since_checkpoint_bytes": (
        "Bytes of journal that an open after a crash would replay",
        lambda stats: stats.durable_lsn - stats.checkpoint_lsn,
    ),
    "pyqstore_message_store_files": (
        "Files of the message store",
        lambda stats: stats.message_files,
    ),
    "pyqstore_message_store_live_bytes": (
        "Bytes in them of messages in queues",
        lambda stats: stats.message_bytes_live,
    ),
    "pyqstore_message_store_bytes": ("Bytes in them", lambda stats: stats.message_bytes_total),
    "pyqstore_commit_running_seconds": (
        "How long the commit under way has waited for the disk",
        lambda stats: stats.commit_running_ms / 1000,
    ),
    "pyqstore_failed": (
        "Whether an input/output error stopped the store",
        lambda stats: float(stats.failed),
    ),
    "pyqstore_recovery_seconds": (
        "How long the recovery at open took",
        lambda stats: stats.recovery_ms / 1000,
    ),
}

ARCHIVE_COUNTERS: dict[str, tuple[str, Callable[[Archived], float]]] = {
    "pyqstore_archive_parts": ("Parts that the archive's target has", lambda it: it.parts),
    "pyqstore_archive_bases": ("Bases that it has", lambda it: it.bases),
    "pyqstore_archive_bytes": ("Bytes that were sent to it", lambda it: it.sent_bytes),
    "pyqstore_archive_restarts": ("Times that the archive began anew", lambda it: it.restarts),
}

ARCHIVE_GAUGES: dict[str, tuple[str, Callable[[Archived], float]]] = {
    "pyqstore_archive_lag_bytes": (
        "Bytes of the journal that are durable and not archived",
        lambda it: it.lag_bytes,
    ),
    "pyqstore_archive_lag_seconds": (
        "For how long the oldest of them has been durable",
        lambda it: it.lag_seconds,
    ),
    "pyqstore_archive_restorable": (
        "1: what is archived now can be restored; 0: its base is not there yet",
        lambda it: it.restorable,
    ),
}

SHOVEL_COUNTERS: dict[str, tuple[str, Callable[[Shovelled], float]]] = {
    "pyqstore_shovel_messages": ("Messages moved", lambda report: report.moved),
    "pyqstore_shovel_bytes": ("Bytes of their bodies", lambda report: report.bytes),
    "pyqstore_shovel_repeated_messages": (
        "Messages that came again and were dropped",
        lambda report: report.repeated,
    ),
    "pyqstore_shovel_dead_letters": (
        "Messages that the target refused",
        lambda report: report.dead,
    ),
    "pyqstore_shovel_reconnections": (
        "Times that an end was opened again",
        lambda report: report.connected,
    ),
}

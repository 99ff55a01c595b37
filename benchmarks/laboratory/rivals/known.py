"""All rivals, pyqstore first."""

from __future__ import annotations

from .contract import Rival
from .jetstream import JetStream
from .kafka import Kafka
from .lmdb_table import Lmdb
from .ours import Pyqstore, PyqstoreStream
from .persist_queues import PersistFiles, PersistSqlite
from .rabbitmq import RabbitMq
from .rabbitmq_stream import RabbitMqStream
from .redis_streams import Redis
from .rocksdb_table import RocksDb
from .sqlite_table import Sqlite


def known() -> dict[str, Rival]:
    """Each of them by name, new and not started."""
    rivals: list[Rival] = [
        Pyqstore(),
        PyqstoreStream(),
        RabbitMq("RabbitMQ classic v1", {"x-queue-type": "classic", "x-queue-version": 1}),
        RabbitMq("RabbitMQ classic v2", {"x-queue-type": "classic", "x-queue-version": 2}),
        RabbitMq("RabbitMQ quorum", {"x-queue-type": "quorum"}),
        Redis(),
        JetStream(),
        Sqlite(),
        Lmdb(),
        RocksDb(),
        PersistFiles(),
        PersistSqlite(),
        Kafka("Kafka, flush.messages=1", 1),
        Kafka("Kafka", 0),
        RabbitMqStream(),
    ]
    return {rival.name: rival for rival in rivals}

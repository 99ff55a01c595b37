"""A node of Kafka of our own, with the verbs that tests of shovels need."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from benchmarks.laboratory.rivals.kafka_node import KafkaNode

CONFIGURED = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.retention.ms": -1,  # messages of tests have old timestamps
}
ANSWER_S = 60


class Kafka:
    """``start`` to ``stop``."""

    def __init__(self, directory: Path) -> None:
        self._node = KafkaNode(directory, CONFIGURED)
        self._made = 0
        self._admin: AdminClient | None = None

    def start(self) -> None:
        self._node.start()

    def stop(self) -> None:
        self._node.stop()

    def restart(self) -> None:
        """Kill the node, and start it again."""
        self._node.restart()

    @property
    def port(self) -> int:
        return self._node.port

    @property
    def options(self) -> dict[str, Any]:
        return {"bootstrap.servers": f"127.0.0.1:{self.port}", "log_level": 0}

    @property
    def admin(self) -> AdminClient:
        """What is asked of it is given up when it goes."""
        if self._admin is None:
            self._admin = AdminClient(self.options)
        return self._admin

    def new_topic(self, partitions: int = 1, **configured: str) -> str:
        """Its name, which no other one has."""
        self._made += 1
        name = f"t{self._made}"
        self.make_topic(name, partitions, **configured)
        return name

    def make_topic(self, name: str, partitions: int = 1, **configured: str) -> None:
        """``configured``: with ``_`` for a dot."""
        config = {key.replace("_", "."): value for key, value in configured.items()}
        until = time.monotonic() + ANSWER_S
        while True:
            try:
                made = NewTopic(name, partitions, 1, config=config)
                self.admin.create_topics([made])[name].result()
                break
            except KafkaException as error:  # one of this name is being deleted
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS" or time.monotonic() > until:
                    raise
        while name not in self.admin.list_topics(timeout=ANSWER_S).topics:
            assert time.monotonic() < until

    def delete_topic(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result()

    def add_partitions(self, name: str, count: int) -> None:
        self.admin.create_partitions([NewPartitions(name, count)])[name].result()

    def drop(self, name: str, before: int) -> None:
        """As retention does: the messages of partition 0 before an offset."""
        place = TopicPartition(name, 0, before)
        self.admin.delete_records([place])[place].result()

    def publish(self, name: str, bodies: Iterable[bytes | None], **more: Any) -> None:
        """Confirmed when this returns; ``more`` as of confluent-kafka's ``produce``."""
        producer = Producer(
            {**self.options, "enable.idempotence": True, "message.max.bytes": 10_000_000}
        )
        for body in bodies:
            producer.produce(name, body, **more)
        assert producer.flush(ANSWER_S) == 0

    def messages(self, name: str, *, committed: bool = True) -> list[Message]:
        """All of a topic, in the order of each partition."""
        level = "read_committed" if committed else "read_uncommitted"
        consumer = Consumer(
            {
                **self.options,
                "group.id": "of-tests",
                "enable.auto.commit": False,
                "isolation.level": level,
                "enable.partition.eof": True,
            }
        )
        partitions = consumer.list_topics(name, timeout=ANSWER_S).topics[name].partitions
        consumer.assign([TopicPartition(name, each, 0) for each in partitions])
        found: list[Message] = []
        ended: set[int | None] = set()
        while len(ended) < len(partitions):
            for message in consumer.consume(1000, 1.0):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.name() == "_PARTITION_EOF":
                    ended.add(message.partition())
                else:
                    raise KafkaException(error)
        consumer.close()
        return found

    def count(self, name: str) -> int:
        """About the messages of a topic."""
        consumer = Consumer({**self.options, "group.id": "of-tests"})
        try:
            partitions = consumer.list_topics(name, timeout=ANSWER_S).topics[name].partitions
            places = [TopicPartition(name, each) for each in partitions]
            ends = [consumer.get_watermark_offsets(each, timeout=ANSWER_S) for each in places]
            return sum(end for _, end in ends)
        finally:
            consumer.close()

    def told(self, group: str, name: str) -> int:
        """The offset of partition 0 that a group has; negative: none."""
        consumer = Consumer({**self.options, "group.id": group})
        try:
            return int(consumer.committed([TopicPartition(name, 0)], timeout=ANSWER_S)[0].offset)
        finally:
            consumer.close()

    def at(self, name: str) -> str:
        """A topic's address."""
        return f"kafka://127.0.0.1:{self.port}/{name}"

"""A cluster of Kafka, by confluent-kafka: its clients' options, what they raise, and what the
cluster tells of a topic."""

from __future__ import annotations

import contextlib
import importlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from typing import Any

from ..errors import NotFound, ShovelError
from .ends import Later
from .kafka_address import KafkaPlace

_log = logging.getLogger("pyqstore.kafka")

__all__ = ["GROUP", "GROUP_TO", "Link", "Topic"]

GROUP = "pyqstore.shovel."
"""In front of the shovel's name: the group that is told how far a topic is read."""
GROUP_TO = "pyqstore.shovel-to."
"""In front of the shovel's name, / and the topic: the group that has the offset of a stream, and
the producer's transactional.id."""
_ANSWER_S = 20.0
_WATCH_S = 0.2  # between two looks at whether to stop
_NOT_FOUND = 404
# What a retry does not help against.
_FOR_GOOD = (
    "_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM",
    "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "SECURITY_DISABLED", "_UNSUPPORTED_FEATURE",
    "UNSUPPORTED_VERSION", "INVALID_TOPIC_EXCEPTION", "INVALID_GROUP_ID",
)  # fmt: skip
_NO_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_ID", "_UNKNOWN_PARTITION")
_LOST = ("_ALL_BROKERS_DOWN", "_TRANSPORT")
_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # sixteen zeros


@dataclass(frozen=True)
class Topic:
    """What the cluster tells of one."""

    id: str
    """"": the cluster has no such thing."""
    partitions: tuple[int, ...]


class Link:
    """Of one end of a shovel."""

    def __init__(self, place: KafkaPlace) -> None:
        """ShovelError: confluent-kafka is not installed, or does not take an option."""
        try:
            self.kafka: Any = importlib.import_module("confluent_kafka")
            self._admin_kafka: Any = importlib.import_module("confluent_kafka.admin")
        except ImportError as error:
            raise ShovelError(
                f"Kafka needs confluent-kafka: pip install 'pyqstore[kafka]' ({error})"
            ) from None
        self.shown: str = place.shown
        self.topic: str = place.topic
        self._place = place
        self.watch: Callable[[], None] = lambda: None
        """As of Source."""
        self._admin: Any = None
        self._trouble: Any = None
        """What ended, or ends, all connections."""
        self._last: str = ""
        self.is_fenced: bool = False
        """Another producer of the same transactional.id has begun."""
        self.losses: int = 0
        """How often a producer lost a broker."""
        self.client("AdminClient", {})

    def client(self, kind: str, options: Mapping[str, Any]) -> Any:
        """A Consumer, a Producer or an AdminClient.  ShovelError."""
        made = getattr(self._admin_kafka if kind == "AdminClient" else self.kafka, kind)
        both = {
            "client.id": "pyqstore-shovel",
            **dict(self._place.options),
            **options,
            "bootstrap.servers": self._place.servers,
            "log_level": 0,  # what else it logs is told in the report
            "error_cb": self.lost if kind == "Producer" else self._failed,
        }
        try:
            return made(both, logger=_log)
        except (self.kafka.KafkaException, ValueError, TypeError) as error:
            raise ShovelError(f"{self.shown}: {_text(error)}") from None

    def open(self) -> Topic:
        """Ask for the topic.  Later, NotFound, ShovelError."""
        self.close()
        self._trouble = None
        self._last = ""
        self._admin = self.client("AdminClient", {})
        return self.topic_of(self.described())

    def described(self) -> Future[Any]:
        """The cluster is asked for the topic; ``topic_of`` takes the answer."""
        topics = self.kafka.TopicCollection([self.topic])
        asked: Future[Any] = self._admin.describe_topics(topics, request_timeout=_ANSWER_S)[
            self.topic
        ]
        return asked

    def topic_of(self, future: Future[Any]) -> Topic:
        """As of ``open``."""
        told = self.answers([future])[0]
        topic_id = str(told.topic_id)
        partitions = tuple(sorted(partition.id for partition in told.partitions))
        return Topic("" if topic_id == _NO_ID else topic_id, partitions)

    def offsets(self, spec: Any, partitions: Iterable[int], committed: bool = True) -> list[Any]:
        """Of each partition where ``spec`` is: an OffsetSpec's answer.  As of ``open``."""
        level = self.kafka.IsolationLevel
        places = [self.kafka.TopicPartition(self.topic, each) for each in partitions]
        if not places:
            return []
        asked = self._admin.list_offsets(
            dict.fromkeys(places, spec),
            isolation_level=level.READ_COMMITTED if committed else level.READ_UNCOMMITTED,
            request_timeout=_ANSWER_S,
        )
        return self.answers(list(asked.values()))

    def tell_group(self, group: str, of: Mapping[int, int]) -> Future[Any] | None:
        """A group of Kafka's has these offsets of the topic; None: the cluster is not asked."""
        places = [self.kafka.TopicPartition(self.topic, each, at) for each, at in of.items()]
        if self._admin is None or not places:
            return None
        asked = self.kafka.ConsumerGroupTopicPartitions(group, places)
        with contextlib.suppress(self.kafka.KafkaException, ValueError):
            told: Future[Any] = self._admin.alter_consumer_group_offsets(
                [asked], request_timeout=_ANSWER_S
            )[group]
            return told
        return None

    def message_bytes_max(self) -> int | None:
        """What the topic takes of a message; None: it is not told.  As of ``open``."""
        admin = self._admin_kafka
        kind = admin.ResourceType.TOPIC
        asked = self._admin.describe_configs(
            [admin.ConfigResource(kind, self.topic)], request_timeout=_ANSWER_S
        )
        try:
            told = self.answers(list(asked.values()))[0]
            return int(told["max.message.bytes"].value)
        except (ShovelError, KeyError, TypeError, ValueError):  # who may write may not ask
            return None

    @property
    def spec(self) -> Any:
        """OffsetSpec."""
        return self._admin_kafka.OffsetSpec

    def answers(self, futures: list[Future[Any]]) -> list[Any]:
        """Wait for what the cluster was asked."""
        until = time.monotonic() + _ANSWER_S + 1
        while any(not each.done() for each in futures):
            wait_for(futures, _WATCH_S)
            self._admin.poll(0)
            self.check()
            self.watch()
            if time.monotonic() > until:
                raise Later(f"{self.shown}: no answer{self._why()}")
        found = []
        for each in futures:
            try:
                found.append(each.result())
            except self.kafka.KafkaException as error:
                raise self.error_of(error.args[0]) from None
        return found

    def lost(self, error: Any) -> None:
        """As ``_failed``, of a producer."""
        self.losses += error.name() in _LOST
        self._failed(error)

    def _failed(self, error: Any) -> None:
        """A client tells of what it does not tell to a call."""
        name = error.name()
        if error.fatal() or name in _FOR_GOOD or name == "_ALL_BROKERS_DOWN":
            if self._trouble is None or name in _FOR_GOOD:
                self._trouble = error
        else:
            self._last = _of(error)

    def check(self) -> None:
        """Raise what the clients have told.  Later, ShovelError."""
        if self._trouble is not None:
            error, self._trouble = self._trouble, None
            raise self.error_of(error)

    def forgive(self) -> None:
        """A broker has answered since: that they all were away is over."""
        if self._trouble is not None and self._trouble.name() == "_ALL_BROKERS_DOWN":
            self._trouble = None

    def error_of(self, error: Any) -> Exception:
        """What to raise for a KafkaError."""
        name = error.name()
        self.is_fenced = self.is_fenced or name in _FENCED
        if name in _NO_TOPIC:
            return NotFound(_NOT_FOUND, f"{self.shown}: {_of(error)}")
        told = f"{self.shown}: {_of(error)}"
        if name in ("_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TRANSPORT"):
            told = f"{self.shown}: no broker answers{self._why()}"
        return ShovelError(told) if name in _FOR_GOOD else Later(told)

    def trouble_of(self, error: Any) -> Exception:
        """The same while a client works: to open again tells whether the topic is there."""
        found = self.error_of(error)
        return Later(str(found)) if isinstance(found, NotFound) else found

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """What a client raises in the block is raised as ``trouble_of``."""
        try:
            yield
        except self.kafka.KafkaException as error:
            raise self.trouble_of(error.args[0]) from None

    def _why(self) -> str:
        return f": {self._last}" if self._last else ""

    def close(self) -> None:
        """What was asked has no answer."""
        admin, self._admin = self._admin, None
        if admin is not None:
            with contextlib.suppress(Exception):
                admin.poll(0)


def _of(error: Any) -> str:
    return f"{error.str()} ({error.name()})"


def _text(error: Exception) -> str:
    """Of what a client raises; librdkafka quotes no value."""
    first = error.args[0] if error.args else error
    return _of(first) if hasattr(first, "name") else str(error)

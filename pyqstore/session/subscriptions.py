"""The queues behind topics: declared, bound, found again, taken away."""

from __future__ import annotations

from ..connection import Connection
from ..errors import NotFound
from ..fields import FieldValue
from ..store import Binding, Store
from .dead_letters import declare_queue
from .destinations import Groups, Queue, Topic
from .errors import IllegalState

__all__ = ["SELECTORS", "TOPICS", "Subscriptions"]

TOPICS = "jms.durable.topic"
"""The exchange that topics are published to."""
SELECTORS = "jms.durable.selectors"
"""The exchange behind it, for subscriptions with a selector."""
_SELECTOR = "x-jms-selector"
_GROUP_HEADER = "JMSXGroupID"
_NAME_BYTES_MAX = 255


class Subscriptions:
    """What sessions of a connection declare.  ``Registry.lock`` is held in each call that looks and
    then acts."""

    def __init__(self, store: Store, connection: Connection) -> None:
        self._store = store
        self._connection = connection

    def declare_topics(self) -> None:
        """The exchange of topics."""
        if TOPICS not in self._store.exchanges():
            with self._connection.channel() as channel:
                channel.exchange_declare(TOPICS, "topic", durable=True)

    def declare_queue(self, queue: Queue) -> None:
        """A durable queue, unless there is one.  ValueError: it is a stream."""
        declare_queue(self._store, self._connection, queue.name)
        if self._store.queue_status(queue.name).stream:
            raise ValueError(f"{queue.name!r} is a stream: read it with Store.stream()")

    def declare_groups(self, groups: Groups) -> None:
        """An exchange that divides messages by their group, and its queues, each with one active
        consumer.  PreconditionFailed: there are others of these names."""
        with self._connection.channel() as channel:
            channel.exchange_declare(
                groups.name,
                "x-consistent-hash",
                durable=True,
                arguments={"hash-header": _GROUP_HEADER},
            )
            for queue in groups.queues:
                channel.queue_declare(
                    queue.name, durable=True, arguments={"x-single-active-consumer": True}
                )
                channel.queue_bind(queue.name, groups.name, "1")

    def temporary_queue(self) -> str:
        """A queue of this connection, which goes with it."""
        with self._connection.channel() as channel:
            return channel.queue_declare("", exclusive=True).queue

    def temporary(self, topic: Topic, selector: str | None) -> str:
        """The queue of a subscription that ends with its consumer."""
        queue = self.temporary_queue()
        self._bind(queue, topic, selector)
        return queue

    def shared(self, queue: str, topic: Topic, selector: str | None) -> None:
        """The queue of a subscription that ends with the last of its consumers."""
        if self.consumers(queue) is None:
            with self._connection.channel() as channel:
                channel.queue_declare(queue, auto_delete=True)
            self._bind(queue, topic, selector)
        else:
            self._check_same(queue, topic, selector)

    def durable(self, queue: str, topic: Topic, selector: str | None) -> None:
        """The queue of a durable subscription.  One of this name to something else is replaced,
        with all that is in it, if it has no consumer; IllegalState otherwise, and when there is a
        queue of that name that is no subscription and has messages."""
        consumers = self.consumers(queue)
        if consumers == 0 and not self._is_same(queue, topic, selector):
            self._check_may_go(queue)
            self._check_selector(topic, selector)
            self.delete(queue)
            consumers = None
        if consumers is None:
            with self._connection.channel() as channel:
                channel.queue_declare(queue, durable=True)
            self._bind(queue, topic, selector)
        else:
            self._check_same(queue, topic, selector)

    def consumers(self, queue: str) -> int | None:
        """How many it has; None: there is no such queue."""
        try:
            return self._store.queue_status(queue).consumers
        except NotFound:
            return None

    def delete(self, queue: str, *, has_selector: bool = True) -> None:
        """With all that is in it, if it is there.  ``has_selector``: it may have one."""
        if self.consumers(queue) is not None:
            with self._connection.channel() as channel:
                channel.queue_delete(queue)
        if has_selector:
            self.forget_selectors()

    def forget_selectors(self) -> None:
        """Topics of which nothing is selected any more do not lead to the exchange of selectors."""
        bindings = self._store.bindings()
        used = {each.routing_key for each in bindings if each.source == SELECTORS}
        with self._connection.channel() as channel:
            for each in bindings:
                leads_there = each.to_exchange and each.destination == SELECTORS
                if leads_there and each.source == TOPICS and each.routing_key not in used:
                    channel.exchange_unbind(SELECTORS, TOPICS, each.routing_key)

    def is_subscription(self, queue: str) -> bool:
        """Whether something leads there from topics."""
        return bool(self._bindings(queue))

    def _bind(self, queue: str, topic: Topic, selector: str | None) -> None:
        """A queue that was declared just now, and is deleted when that fails."""
        try:
            self._bind_to_topic(queue, topic, selector)
        except BaseException:
            self.delete(queue)
            raise

    def _bind_to_topic(self, queue: str, topic: Topic, selector: str | None) -> None:
        self.declare_topics()
        key = topic.binding_key
        with self._connection.channel() as channel:
            if selector is None:
                channel.queue_bind(queue, TOPICS, key)
                return
            channel.exchange_declare(SELECTORS, "x-jms-topic", durable=True)
            self.forget_selectors()  # of subscriptions that a crash, or a connection's end, took
            # In this order: a queue that is bound is taken for a whole subscription.
            channel.exchange_bind(SELECTORS, TOPICS, key)
            channel.queue_bind(queue, SELECTORS, key, {_SELECTOR: selector})

    def _check_may_go(self, queue: str) -> None:
        """A queue without a binding is half a subscription, or somebody's."""
        status = self._store.queue_status(queue)
        held = status.messages_ready + status.messages_unacked + status.messages_delayed
        if held and not self._bindings(queue):
            raise IllegalState(f"there is a queue {queue!r}, which is no subscription")

    def _check_selector(self, topic: Topic, selector: str | None) -> None:
        """PreconditionFailed before anything is deleted for one that is none."""
        queue = self.temporary_queue()
        try:
            self._bind_to_topic(queue, topic, selector)
        finally:
            self.delete(queue)

    def _bindings(self, queue: str) -> list[Binding]:
        return [
            binding
            for binding in self._store.bindings()
            if binding.destination == queue and binding.source in (TOPICS, SELECTORS)
        ]

    def _is_same(self, queue: str, topic: Topic, selector: str | None) -> bool:
        source = TOPICS if selector is None else SELECTORS
        wanted: dict[str, FieldValue] = {} if selector is None else {_SELECTOR: selector}
        return [
            (binding.source, binding.routing_key, binding.arguments)
            for binding in self._bindings(queue)
        ] == [(source, topic.binding_key, wanted)]

    def _check_same(self, queue: str, topic: Topic, selector: str | None) -> None:
        if not self._is_same(queue, topic, selector):
            raise IllegalState(
                f"subscription {queue!r} has consumers, and another topic or selector"
            )


def subscription_queue(client_id: str | None, name: str) -> str:
    """ValueError for a name that no queue can have."""
    if not name:
        raise ValueError("a subscription's name must not be empty")
    queue = name if client_id is None else f"{client_id}.{name}"
    if len(queue.encode("utf-8", "surrogateescape")) > _NAME_BYTES_MAX or "\0" in queue:
        raise ValueError("client id and name have at most 254 bytes together, and no NUL character")
    return queue

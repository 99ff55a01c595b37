"""The queues of topics: declaring, binding, finding and deleting them."""

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
"""The exchange to which topics are published."""
SELECTORS = "jms.durable.selectors"
"""The exchange bound to it, for subscriptions with a selector."""
_SELECTOR = "x-jms-selector"
_GROUP_HEADER = "JMSXGroupID"
_NAME_BYTES_MAX = 255


class Subscriptions:
    """Declares the objects of a connection's sessions.  ``Registry.lock`` is held in each call that
    checks and then acts."""

    def __init__(self, store: Store, connection: Connection) -> None:
        self._store = store
        self._connection = connection

    def declare_topics(self) -> None:
        """Declares the exchange of topics."""
        if TOPICS not in self._store.exchanges():
            with self._connection.channel() as channel:
                channel.exchange_declare(TOPICS, "topic", durable=True)

    def declare_queue(self, queue: Queue) -> None:
        """Declares a durable queue, unless it exists.  ValueError: it is a stream."""
        declare_queue(self._store, self._connection, queue.name)
        if self._store.queue_status(queue.name).stream:
            raise ValueError(f"{queue.name!r} is a stream: read it with Store.stream()")

    def declare_groups(self, groups: Groups) -> None:
        """Declares an exchange that divides messages by their group, and its queues, each with a
        single active consumer.  PreconditionFailed: others have these names."""
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
        """Declares a queue of this connection, which is deleted with it."""
        with self._connection.channel() as channel:
            return channel.queue_declare("", exclusive=True).queue

    def temporary(self, topic: Topic, selector: str | None) -> str:
        """Declares the queue of a subscription that ends with its consumer."""
        queue = self.temporary_queue()
        self._bind(queue, topic, selector)
        return queue

    def shared(self, queue: str, topic: Topic, selector: str | None) -> None:
        """Declares the queue of a subscription that ends with the last of its consumers."""
        if self.consumers(queue) is None:
            with self._connection.channel() as channel:
                channel.queue_declare(queue, auto_delete=True)
            self._bind(queue, topic, selector)
        else:
            self._check_same(queue, topic, selector)

    def durable(self, queue: str, topic: Topic, selector: str | None) -> None:
        """Declares the queue of a durable subscription.  A subscription of this name with another
        topic or selector is replaced, with all its messages, if it has no consumer.  IllegalState:
        it has one, or the queue of that name is no subscription and has messages."""
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
        """The number of its consumers; None: there is no such queue."""
        try:
            return self._store.queue_status(queue).consumers
        except NotFound:
            return None

    def delete(self, queue: str, *, has_selector: bool = True) -> None:
        """Deletes a queue with all its messages, if it exists.  ``has_selector``: it may have
        one."""
        if self.consumers(queue) is not None:
            with self._connection.channel() as channel:
                channel.queue_delete(queue)
        if has_selector:
            self.forget_selectors()

    def forget_selectors(self) -> None:
        """Unbinds topics without a selector from the exchange of selectors."""
        bindings = self._store.bindings()
        used = {each.routing_key for each in bindings if each.source == SELECTORS}
        with self._connection.channel() as channel:
            for each in bindings:
                leads_there = each.to_exchange and each.destination == SELECTORS
                if leads_there and each.source == TOPICS and each.routing_key not in used:
                    channel.exchange_unbind(SELECTORS, TOPICS, each.routing_key)

    def is_subscription(self, queue: str) -> bool:
        """Whether a topic leads to the queue."""
        return bool(self._bindings(queue))

    def _bind(self, queue: str, topic: Topic, selector: str | None) -> None:
        """Binds a new queue, and deletes it if that fails."""
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
            # Of subscriptions that ended with a crash, or with a connection.
            self.forget_selectors()
            # In this order: a queue with a binding counts as a complete subscription.
            channel.exchange_bind(SELECTORS, TOPICS, key)
            channel.queue_bind(queue, SELECTORS, key, {_SELECTOR: selector})

    def _check_may_go(self, queue: str) -> None:
        """A queue without a binding is an incomplete subscription, or another object."""
        status = self._store.queue_status(queue)
        held = status.messages_ready + status.messages_unacked + status.messages_delayed
        if held and not self._bindings(queue):
            raise IllegalState(f"there is a queue {queue!r}, which is no subscription")

    def _check_selector(self, topic: Topic, selector: str | None) -> None:
        """PreconditionFailed for an invalid selector, before anything is deleted."""
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
    """ValueError: no queue can have the name."""
    if not name:
        raise ValueError("a subscription's name must not be empty")
    queue = name if client_id is None else f"{client_id}.{name}"
    if len(queue.encode("utf-8", "surrogateescape")) > _NAME_BYTES_MAX or "\0" in queue:
        raise ValueError("client id and name have at most 254 bytes together, and no NUL character")
    return queue

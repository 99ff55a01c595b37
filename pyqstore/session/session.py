"""Sessions: consumers, producers and transactions over one channel."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial

from ..closing import Closing
from ..connection import Connection
from ..errors import Error, StoreCorrupt
from ..forking import check_process
from ..peeking import peeks
from ..store import Store
from ..waiting import Seconds, check_timeout
from .consumer import Consumer, Peers, Plan
from .dead_letters import DeadLetters
from .destinations import Destination, Groups, Queue, Topic, queue_of, topic_of
from .errors import IllegalState, TransactionRolledBack
from .failures import Failures
from .link import Link, Registration
from .listening import Listening
from .message import Message
from .modes import Mode, optimizes, rules_of
from .options import Options
from .producer import Producer
from .redelivery import RedeliveryPolicy
from .registry import Registry
from .subscriptions import Subscriptions, subscription_queue

__all__ = ["Home", "Session"]


class Home:
    """The state shared by the sessions of a connection."""

    def __init__(
        self, store: Store, connection: Connection, registry: Registry, options: Options
    ) -> None:
        self.store = store
        self.connection = connection
        self.registry = registry
        self.options = options
        self.subscriptions: Subscriptions = Subscriptions(store, connection)
        self.dead_letters: DeadLetters = DeadLetters(connection, options.dead_letter_queue)
        self.failures: Failures = Failures()


class Session(Closing):
    """Receives and sends by the rules of one acknowledgement mode; made by
    ``Connection.session()``.

    One thread at a time may use it.  Once a consumer has a listener, that is the session's own
    thread, which calls listeners one after another; others may close, send and acknowledge.

    Every verb raises IllegalState when the session is closed.
    """

    def __init__(self, home: Home, mode: Mode, on_close: Callable[[Session], object]) -> None:
        """See ``Connection.session``."""
        self._home = home
        self._on_close = on_close
        self._mode: Mode = mode
        self._link = Link(home.connection, home.store, mode == "transacted")
        wait_for_acks = not home.options.send_acks_async
        self._peers = Peers(
            self._link, mode, home.dead_letters, wait_for_acks, home.registry.lock, home.failures
        )
        self._listening = Listening(self._peers)
        self._peers.listen = self._listening.begin
        self._peers.await_listener = self._listening.await_listener

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._mode!r}{' (closed)' if self.closed else ''}>"

    @property
    def mode(self) -> Mode:
        """The acknowledgement mode."""
        return self._mode

    @property
    def transacted(self) -> bool:
        """Whether the mode is "transacted"."""
        return self._mode == "transacted"

    @property
    def closed(self) -> bool:
        """Whether the session or its connection was closed."""
        return self._link.is_closed

    # Destinations.

    def queue(self, name: str) -> Queue:
        """The queue ``name``, with options as ``orders?consumer.prefetchSize=100``: also
        ``consumer.exclusive`` and ``consumer.priority``.

        A missing queue is declared durable on first use; an existing one is taken as it is.
        ValueError names an unknown option.
        """
        return queue_of(name)

    def topic(self, name: str) -> Topic:
        """The topic ``name``, words separated by dots, with options as of ``queue()``, and
        ``consumer.selector``.  To subscribe, ``*`` is any word, ``>`` at the end any words."""
        return topic_of(name)

    def groups(self, name: str, count: int) -> Groups:
        """``count`` queues, ``name.0`` and so on, declared; messages sent to this destination are
        divided among them by their property ``JMSXGroupID``.  Messages of a group come in order to
        one consumer at a time.

        PreconditionFailed: another exchange or queue has that name.
        """
        queue_of(name)
        if count < 1:
            raise ValueError(f"count must be 1 or more, not {count}")
        groups = Groups(name, count=count)
        self._link.check()
        self._home.subscriptions.declare_groups(groups)
        return groups

    def temporary_queue(self) -> Queue:
        """A queue for answers (``reply_to``), with a made up name.  Only sessions of this
        connection consume from it, and it is deleted with the connection."""
        self._link.check()
        return Queue(self._home.subscriptions.temporary_queue())

    # Consumers.

    def consumer(
        self,
        destination: Destination,
        *,
        prefetch: int | None = None,
        optimize_acknowledge: bool | None = None,
        optimize_timeout: Seconds | None = None,
        selector: str | None = None,
        redelivery: RedeliveryPolicy | None = None,
    ) -> Consumer:
        """A consumer of a queue; of a topic the same as ``subscribe()`` without a name.

        ``prefetch``: the number of messages pushed ahead; 0: each ``receive`` fetches one; None:
        the option in the destination's name, or that of the connection.  ``optimize_acknowledge``
        (in mode "auto", and in "dups_ok" on a queue): acknowledge when 65 % of prefetch are
        consumed, or when a message is consumed ``optimize_timeout`` seconds after the last time,
        and at the close.  ``redelivery``: a policy in place of the connection's.

        ValueError: optimized without a prefetch, a selector on a queue, a stream; IllegalState:
        exclusive, and the queue has a consumer.
        """
        if isinstance(destination, Topic):
            return self.subscribe(
                destination,
                selector=selector,
                prefetch=prefetch,
                optimize_acknowledge=optimize_acknowledge,
                optimize_timeout=optimize_timeout,
                redelivery=redelivery,
            )
        if not isinstance(destination, Queue):
            raise TypeError(f"consume from a Queue or a Topic, not {type(destination).__name__}")
        if selector is not None or destination.options.selector is not None:
            raise ValueError(
                f"queue {destination.name!r}: there are no selectors on queues; subscribe to a"
                " topic with one"
            )
        self._link.check()
        with self._home.registry.lock:
            if not destination.name.startswith("amq."):  # a temporary one exists
                self._home.subscriptions.declare_queue(destination)
            exclusive = destination.options.exclusive
            if exclusive and self._home.subscriptions.consumers(destination.name):
                raise IllegalState(f"queue {destination.name!r} has a consumer already")
            plan = self._plan(
                destination,
                destination.name,
                exclusive=exclusive,
                is_durable=False,
                prefetch=prefetch,
                optimize=optimize_acknowledge,
                timeout=optimize_timeout,
                redelivery=redelivery,
            )
            return Consumer(self._peers, plan)

    def subscribe(
        self,
        topic: Topic,
        name: str | None = None,
        *,
        durable: bool = False,
        shared: bool = False,
        selector: str | None = None,
        prefetch: int | None = None,
        optimize_acknowledge: bool | None = None,
        optimize_timeout: Seconds | None = None,
        redelivery: RedeliveryPolicy | None = None,
    ) -> Consumer:
        """Subscribe to a topic, and return a consumer of the subscription.

        Without a ``name`` it ends with its consumer.  A ``durable`` one is the durable queue
        ``client_id.name``: messages sent while it has no consumer wait, until ``unsubscribe()``.  A
        ``shared`` subscription has any number of consumers, which divide its messages; any other
        has one consumer, and needs the connection's ``client_id``.  A shared one that is not
        durable ends with its last consumer.

        ``selector``: a condition on properties, SQL-92, as ``"side = 'buy' AND size > 10"``: other
        messages never reach the subscription.  The other arguments: as of ``consumer()``.

        A durable subscription that changes its topic or selector begins anew, and its waiting
        messages are dropped.  IllegalState: it has a consumer and is not shared, or would be
        changed meanwhile; ValueError; PreconditionFailed for an invalid selector.
        """
        if not isinstance(topic, Topic):
            raise TypeError(f"subscribe to a Topic, not {type(topic).__name__}")
        if (durable or shared) and name is None:
            raise ValueError("a durable or shared subscription needs a name")
        if name is not None and not durable and not shared:
            raise ValueError("a subscription with a name is durable, shared, or both")
        client_id = self._home.options.client_id
        if durable and not shared and client_id is None:
            raise IllegalState("a durable subscription that is not shared needs a client_id")
        self._link.check()
        chosen = topic.options.selector if selector is None else selector
        subscriptions = self._home.subscriptions
        with self._home.registry.lock:
            if name is None:
                queue = subscriptions.temporary(topic, chosen)
            else:
                queue = subscription_queue(client_id, name)
                if durable and not shared and subscriptions.consumers(queue):
                    raise IllegalState(f"Durable consumer is in use: {queue}")
                declare = subscriptions.durable if durable else subscriptions.shared
                declare(queue, topic, chosen)
            plan = self._plan(
                topic,
                queue,
                exclusive=not shared,
                is_durable=durable,
                prefetch=prefetch,
                optimize=optimize_acknowledge,
                timeout=optimize_timeout,
                redelivery=redelivery,
            )
            if name is None:
                plan.on_close = partial(self._delete_temporary, queue, chosen is not None)
            elif chosen is not None and not durable:
                plan.on_close = self._forget_selectors
            return Consumer(self._peers, plan)

    def _plan(
        self,
        destination: Destination,
        queue: str,
        *,
        exclusive: bool,
        is_durable: bool,
        prefetch: int | None,
        optimize: bool | None,
        timeout: Seconds | None,
        redelivery: RedeliveryPolicy | None,
    ) -> Plan:
        options = self._home.options
        is_topic = isinstance(destination, Topic)
        optimized = options.optimize_acknowledge if optimize is None else optimize
        if prefetch is None:
            prefetch = destination.options.prefetch
        if prefetch is None:
            prefetch = options.prefetch(is_topic, is_durable, optimized)
        if prefetch < 0:
            raise ValueError(f"prefetch must be 0 or more, not {prefetch}")
        if prefetch == 0 and optimizes(self._mode, is_topic, optimized):
            raise ValueError("optimize_acknowledge needs a prefetch of 1 or more")
        seconds = options.optimize_timeout
        if timeout is not None:
            seconds = check_timeout(timeout, "optimize_timeout")
        rules = rules_of(self._mode, is_topic, prefetch, optimized, seconds or None)
        most = prefetch + rules.growth if prefetch else 0
        registration = Registration(queue, most, exclusive, destination.options.priority)
        return Plan(destination, registration, rules, redelivery or options.redelivery)

    def _delete_temporary(self, queue: str, has_selector: bool) -> None:
        with self._home.registry.lock:
            if not self._home.store.closed and not self._home.connection.closed:
                self._home.subscriptions.delete(queue, has_selector=has_selector)

    def _forget_selectors(self) -> None:
        with self._home.registry.lock:
            if not self._home.store.closed and not self._home.connection.closed:
                self._home.subscriptions.forget_selectors()

    def unsubscribe(self, name: str) -> None:
        """End a durable subscription, and delete its queue with all waiting messages.

        IllegalState: it has a consumer, or there is none of that name.
        """
        self._link.check()
        queue = subscription_queue(self._home.options.client_id, name)
        subscriptions = self._home.subscriptions
        with self._home.registry.lock:
            if not subscriptions.is_subscription(queue):
                raise IllegalState(f"there is no subscription {queue!r}")
            if subscriptions.consumers(queue):
                raise IllegalState(f"Durable consumer is in use: {queue}")
            subscriptions.delete(queue)

    def browse(self, queue: Queue) -> Iterator[Message]:
        """Iterate the messages of a queue, in order: unacknowledged ones included, delayed ones
        not.  Nothing is delivered, and the messages cannot be acknowledged.  NotFound: there is no
        such queue."""
        if not isinstance(queue, Queue):
            raise TypeError(f"browse a Queue, not {type(queue).__name__}")
        self._link.check()

        def damaged(error: StoreCorrupt) -> None:
            raise error

        prefetch = queue.options.prefetch
        ahead = self._home.options.queue_browser_prefetch if prefetch is None else prefetch
        found = (
            Message(raw, None, queue)
            for raw, state in peeks(self._home.store, queue.name, damaged)
            if state != "delayed"
        )
        while page := list(itertools.islice(found, max(1, ahead))):
            for message in page:
                check_process(self._home.store)
                yield message

    # Producers.

    def producer(self, destination: Destination | None = None) -> Producer:
        """A producer that sends to ``destination``, or, if that is None, to the destination of each
        ``send``."""
        self._link.check()
        return Producer(
            self._link,
            self._home.subscriptions,
            destination,
            transacted=self.transacted,
            wait=not self._home.options.use_async_send,
        )

    # Transactions.

    def commit(self) -> None:
        """Acknowledge all messages delivered and publish all messages sent since the last commit,
        together and durably.

        TransactionRolledBack: the commit failed, or an earlier error such as a refused send had
        ended the transaction; everything is as after ``rollback()``; IllegalState: the session is
        not transacted.
        """
        with self._link.lock:
            self._check_transacted()
            try:
                if self._peers.loss is not None:
                    raise self._peers.loss
                delivered = self._peers.delivered
                self._link.commit([message._tag for message in delivered])
            except Error as error:
                with suppress(Error):
                    self._after_failed_commit(error)
                raise TransactionRolledBack(f"the transaction was rolled back: {error}") from error
            self._peers.settled(delivered)

    def _after_failed_commit(self, error: Error) -> None:
        try:
            if not self._link.channel.closed:
                self._roll_back(f"the commit failed: {error}")
            else:
                self._link.mend(error)
        finally:
            self._peers.loss = None  # its caller is told

    def rollback(self) -> None:
        """Drop the messages sent since the last commit, and redeliver those that were delivered, in
        order, after the policy's delay.  IllegalState: the session is not transacted."""
        with self._link.lock:
            self._check_transacted()
            self._link.mend()
            self._roll_back("rolled back")

    def _roll_back(self, cause: str) -> None:
        self._link.roll_back()
        self._take_all_back(cause)

    def _take_all_back(self, cause: str) -> None:
        for consumer in self._peers.consumers:
            consumer._recover(cause)
        self._peers.forget_closed()
        self._link.interrupt()  # receivers wait for them
        self._peers.loss = None  # messages taken back need no acknowledgement any more

    def _check_transacted(self) -> None:
        self._link.check()
        if not self.transacted:
            raise IllegalState("Not a transacted session")

    def recover(self) -> None:
        """Redeliver all unacknowledged messages, in order, after the policy's delay.  IllegalState:
        the session is transacted."""
        with self._link.lock:
            self._link.check()
            if self.transacted:
                raise IllegalState("This session is transacted")
            self._link.mend()
            self._take_all_back("recovered")

    def _check_not_listening(self) -> None:
        """IllegalState: a listener of this session calls this."""
        self._listening.check_elsewhere()

    def close(self) -> None:
        """Roll back an open transaction, acknowledge messages that wait for their batch, and
        requeue unacknowledged ones.  Closing twice is fine.

        Waits for a running listener.  A ``receive`` in another thread returns None.  IllegalState:
        a listener of this session calls.
        """
        if self._link.is_closed:
            return
        self._listening.end()
        with self._home.registry.lock, self._link.lock, ExitStack() as rest:
            if self._link.is_closed:
                return
            consumers = list(self._peers.consumers)
            # In reverse order, and all of them, even after errors.
            rest.callback(self._on_close, self)
            for consumer in consumers:
                rest.callback(consumer._ended)
            rest.callback(self._peers.consumers.clear)
            rest.callback(self._link.close)
            for consumer in consumers:
                rest.callback(consumer._end)

"""The cases of activemq/Sessions.java, on a store: each returns what was seen, in the same form."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyqstore import session as jms

from ..support import wait_until

QUIET_S = 0.3
PATIENCE_S = 20.0
MODES = ("auto", "dups_ok", "client", "individual")

Seen = list[int | str]


class Cases:
    """Plays cases on one store; each has queues and topics of its own."""

    def __init__(self, path: Path) -> None:
        self._uri = f"qstore://{path}"
        self._open = jms.connect(self._uri)  # the store stays open between the cases
        self._store = self._open.store
        self._names = 0
        self._acked_before = 0

    def close(self) -> None:
        self._open.close()

    # What cases are made of.

    @contextmanager
    def connection(self, options: str = "", **policy: Any) -> Iterator[jms.Connection]:
        """By URI, so that the options are parsed as well."""
        redelivery = jms.RedeliveryPolicy(**policy) if policy else None
        with jms.connect(f"{self._uri}?{options}", redelivery=redelivery) as connection:
            yield connection

    def destination(self, session: jms.Session, topic: bool) -> jms.Destination:
        self._names += 1
        name = f"d{self._names}"
        return session.topic(name) if topic else session.queue(name)

    def send(
        self, connection: jms.Connection, to: jms.Destination, bodies: list[str], persistent: bool
    ) -> None:
        with connection.session() as session:
            producer = session.producer(to)
            for body in bodies:
                producer.send(body, persistent=persistent)

    def begin(self) -> None:
        self._acked_before = self._store.stats()["messages_acked"]

    def acked(self) -> int:
        return int(self._store.stats()["messages_acked"]) - self._acked_before

    def settle(self, seen: Seen, least: int) -> None:
        """Wait for so many, and until nothing was added for a while."""
        with suppress(AssertionError):
            wait_until(lambda: len(seen) >= least, PATIENCE_S)
        before = -1
        while before != len(seen):
            before = len(seen)
            time.sleep(QUIET_S)

    def receive(self, consumer: jms.Consumer, count: int, seen: Seen) -> None:
        for _ in range(count):
            message = consumer.receive(PATIENCE_S)
            seen.append("nothing" if message is None else told(message))

    def rest(self, connection: jms.Connection, queue: jms.Destination, seen: Seen) -> None:
        with connection.session() as session:
            consumer = session.consumer(queue)
            while (message := consumer.receive(0)) is not None:
                seen.append(f"left {told(message)}")

    def dead(self, connection: jms.Connection, seen: Seen) -> None:
        with connection.session() as session:
            consumer = session.consumer(session.queue("ActiveMQ.DLQ"))
            while (message := consumer.receive(0)) is not None:
                cause = " with its cause" if "dlqDeliveryFailureCause" in message.properties else ""
                seen.append(f"dead {told(message)}{cause}")

    # The cases.

    def moments(
        self, mode: str, optimize: bool, topic: bool, listener: bool, prefetch: int, count: int
    ) -> Seen:
        """How many are acknowledged when each is handed out, at the end, after the close."""
        seen: Seen = []
        options = f"prefetch={prefetch}&optimizeAcknowledge={str(optimize).lower()}"
        with self.connection(f"{options}&optimizeAcknowledgeTimeOut=0") as connection:
            session = connection.session(mode)
            source = self.destination(session, topic)
            consumer = session.consumer(source)
            self.begin()
            if listener:
                consumer.listener = lambda message: seen.append(self.acked())
            self.send(connection, source, [str(i) for i in range(count)], False)
            if listener:
                self.settle(seen, count if mode in ("auto", "dups_ok") else prefetch * 3 // 2)
            else:
                while len(seen) < count and consumer.receive(0) is not None:  # all is there
                    seen.append(self.acked())
            seen.append(self.acked())
            session.close()
            seen.append(self.acked())
        return seen

    def raises(self, mode: str, optimize: bool, topic: bool) -> Seen:
        """The listener raises at "b", twice."""
        seen: Seen = []
        left = 2

        def listen(message: jms.Message) -> None:
            nonlocal left
            seen.append(told(message))
            if message.text == "b" and left > 0:
                left -= 1
                raise RuntimeError("no")

        options = f"optimizeAcknowledge={str(optimize).lower()}&optimizeAcknowledgeTimeOut=0"
        with self.connection(
            options, initial_redelivery_delay=0.02, redelivery_delay=0.02
        ) as connection:
            session = connection.session(mode)
            source = self.destination(session, topic)
            consumer = session.consumer(source)
            self.begin()
            consumer.listener = listen
            self.send(connection, source, ["a", "b", "c"], True)
            redelivers = mode in ("auto", "dups_ok") and not (mode == "dups_ok" and topic)
            self.settle(seen, 7 if mode == "individual" else 5 if redelivers else 3)
            seen.append(self.acked())
            session.close()
            if not topic:
                self.rest(connection, source, seen)
        return seen

    def limit(self, persistent: bool, blocking: bool) -> Seen:
        """ "x" always fails."""
        seen: Seen = []

        def listen(message: jms.Message) -> None:
            seen.append(told(message))
            if message.text == "x":
                raise RuntimeError("no")

        with self.connection(
            maximum_redeliveries=2,
            initial_redelivery_delay=0.1,
            redelivery_delay=0.1,
            non_blocking_redelivery=not blocking,
        ) as connection:
            session = connection.session()
            source = self.destination(session, False)
            self.send(connection, source, ["x", "y"], persistent)
            session.consumer(source).listener = listen
            self.settle(seen, 4)
            self.dead(connection, seen)
        return seen

    def delays(self) -> Seen:
        """The milliseconds between the deliveries of one that always fails."""
        times: list[float] = []

        def listen(message: jms.Message) -> None:
            times.append(time.monotonic())
            raise RuntimeError("no")

        with self.connection(
            maximum_redeliveries=5,
            initial_redelivery_delay=0.06,
            redelivery_delay=0.06,
            use_exponential_back_off=True,
            back_off_multiplier=2.0,
            maximum_redelivery_delay=0.3,
        ) as connection:
            session = connection.session()
            source = self.destination(session, False)
            self.send(connection, source, ["x"], False)
            session.consumer(source).listener = listen
            wait_until(lambda: len(times) == 6)
            session.close()
            return [round((b - a) * 1000) for a, b in itertools.pairwise(times)]

    def rollback(self) -> Seen:
        seen: Seen = []
        with self.connection(initial_redelivery_delay=0.05, redelivery_delay=0.05) as connection:
            session = connection.session("transacted")
            source = self.destination(session, False)
            self.send(connection, source, [str(i) for i in range(5)], True)
            self.begin()
            consumer = session.consumer(source)
            self.receive(consumer, 3, seen)
            session.rollback()
            seen.append(self.acked())
            self.receive(consumer, 4, seen)
            session.rollback()
            self.receive(consumer, 5, seen)
            session.commit()
            seen.append(self.acked())
        return seen

    def rollback_limit(self) -> Seen:
        seen: Seen = []
        with self.connection(
            maximum_redeliveries=2, initial_redelivery_delay=0.02, redelivery_delay=0.02
        ) as connection:
            session = connection.session("transacted")
            source = self.destination(session, False)
            self.send(connection, source, ["x", "y"], True)
            consumer = session.consumer(source)
            for _ in range(3):
                self.receive(consumer, 1, seen)
                session.rollback()
            self.receive(consumer, 1, seen)
            session.commit()
            self.dead(connection, seen)
        return seen

    def recover(self, mode: str) -> Seen:
        seen: Seen = []
        with self.connection(initial_redelivery_delay=0.02, redelivery_delay=0.02) as connection:
            session = connection.session(mode)
            source = self.destination(session, False)
            self.send(connection, source, [str(i) for i in range(4)], True)
            self.begin()
            consumer = session.consumer(source)
            self.receive(consumer, 2, seen)
            session.recover()
            self.receive(consumer, 2 if mode == "auto" else 3, seen)
            session.recover()
            if mode == "auto":
                seen.append("nothing" if consumer.receive(QUIET_S) is None else "something")
            else:
                self.receive(consumer, 1, seen)
            seen.append(self.acked())
        return seen

    def scope(self) -> Seen:
        """acknowledge() in CLIENT: of the session, all its consumers; not what comes later."""
        with self.connection() as connection:
            session = connection.session("client")
            one, two = self.destination(session, False), self.destination(session, False)
            self.send(connection, one, ["a", "b", "c"], True)
            self.send(connection, two, ["d", "e"], True)
            self.begin()
            first, second = session.consumer(one), session.consumer(two)
            a = first.receive(PATIENCE_S)
            assert a is not None
            first.receive(PATIENCE_S)
            second.receive(PATIENCE_S)
            a.acknowledge()
            seen: Seen = [self.acked()]
            first.receive(PATIENCE_S)
            a.acknowledge()
            seen.append(self.acked())
        return seen

    def individual(self) -> Seen:
        seen: Seen = []
        with self.connection() as connection:
            session = connection.session("individual")
            source = self.destination(session, False)
            self.send(connection, source, [str(i) for i in range(6)], True)
            self.begin()
            consumer = session.consumer(source)
            for i in range(6):
                message = consumer.receive(PATIENCE_S)
                assert message is not None
                if i % 2 == 1:
                    message.acknowledge()
                seen.append(self.acked())
            session.close()
            self.rest(connection, source, seen)
        return seen

    def left(self, mode: str) -> Seen:
        """Two of five are handed out, none is settled by hand: how many a browser sees, and what
        the next session gets."""
        seen: Seen = []
        with self.connection() as connection:
            session = connection.session(mode)
            source = self.destination(session, False)
            self.send(connection, source, [str(i) for i in range(5)], True)
            self.receive(session.consumer(source), 2, seen)
            assert isinstance(source, jms.Queue)
            seen.append(len(list(connection.session().browse(source))))
            session.close()
            self.rest(connection, source, seen)
        return seen

    def refusals(self) -> Seen:
        seen: Seen = []
        with self.connection("prefetch=0") as connection:
            session = connection.session()
            consumer = session.consumer(self.destination(session, False))
            seen.append(refused(lambda: setattr(consumer, "listener", print)))
        with self.connection() as connection:
            session = connection.session()
            session.consumer(self.destination(session, False)).listener = print
            consumer = session.consumer(self.destination(session, False))
            seen.append(refused(lambda: consumer.receive(0.01)))
            seen.append(refused(connection.session("transacted").recover))
            seen.append(refused(session.commit))
            seen.append(refused(session.rollback))
            other = connection.session("client")
            other.close()
            seen.append(refused(other.recover))
        return seen

    def uri(self) -> Seen:
        """Options of a URI, and of a destination's name, which come before them: how many are
        acknowledged when each of seventy is handed out; how often one comes that is rolled back."""
        seen: Seen = []
        options = (
            "jms.optimizeAcknowledge=true&jms.optimizeAcknowledgeTimeOut=30000"
            "&jms.prefetchPolicy.queuePrefetch=12&jms.prefetchPolicy.topicPrefetch=20"
            "&jms.redeliveryPolicy.maximumRedeliveries=2"
            "&jms.redeliveryPolicy.initialRedeliveryDelay=20"
            "&jms.redeliveryPolicy.redeliveryDelay=20"
        )
        with self.connection(options) as connection:
            for topic, own in itertools.product((False, True), ("", "?consumer.prefetchSize=100")):
                session = connection.session()
                plain = self.destination(session, topic).name
                source = (session.topic if topic else session.queue)(f"{plain}{own}")
                consumer = session.consumer(source)
                self.begin()
                self.send(connection, source, [str(i) for i in range(70)], False)
                for _ in range(70):
                    assert consumer.receive(PATIENCE_S) is not None
                    seen.append(self.acked())
                session.close()
            session = connection.session("transacted")
            source = self.destination(session, False)
            self.send(connection, source, ["x"], True)
            consumer = session.consumer(source)
            for _ in range(3):
                self.receive(consumer, 1, seen)
                session.rollback()
            self.dead(connection, seen)
        return seen


def told(message: jms.Message) -> str:
    return f"{message.text}{' again' if message.redelivered else ''} {message.delivery_count}"


def refused(call: Callable[[], object]) -> str:
    """The error, by the name that it has there."""
    try:
        call()
    except jms.IllegalState as error:
        return f"IllegalStateException: {error}"
    except ValueError as error:
        return f"JMSException: {error}"
    return "done"


def word(flag: bool, yes: str, no: str = "") -> str:
    return yes if flag else no


def all_cases(cases: Cases) -> dict[str, Callable[[], Seen]]:
    """By the names that the Java program gives them."""
    found: dict[str, Callable[[], Seen]] = {}

    def moments(
        mode: str, optimize: bool, topic: bool, listener: bool, prefetch: int, count: int
    ) -> None:
        name = (
            f"moments {mode}{word(optimize, ' optimize')}{word(topic, ' topic', ' queue')}"
            f"{word(listener, ' listener', ' receive')} {prefetch}"
        )
        found[name] = lambda: cases.moments(mode, optimize, topic, listener, prefetch, count)

    def raises(mode: str, optimize: bool, topic: bool) -> None:
        name = f"raises {mode}{word(optimize, ' optimize')}{word(topic, ' topic', ' queue')}"
        found[name] = lambda: cases.raises(mode, optimize, topic)

    both = (False, True)
    for optimize in both:
        for mode in MODES:
            for topic in both:
                for listener in both:
                    moments(mode, optimize, topic, listener, 20, 100)
    moments("auto", True, False, False, 1, 6)
    moments("dups_ok", True, True, False, 1, 6)
    for topic in both:
        for listener in both:
            moments("transacted", False, topic, listener, 20, 100)
        for mode in ("transacted", *MODES):
            raises(mode, False, topic)
        raises("auto", True, topic)
    for persistent in both:
        for blocking in both:
            name = f"limit {word(persistent, 'persistent', 'transient')}"
            found[f"{name} {word(blocking, 'blocking', 'passing')}"] = (
                lambda persistent=persistent, blocking=blocking: cases.limit(persistent, blocking)
            )
    found["delays"] = cases.delays
    found["rollback"] = cases.rollback
    found["rollback limit"] = cases.rollback_limit
    for mode in ("client", "individual", "auto"):
        found[f"recover {mode}"] = lambda mode=mode: cases.recover(mode)
    found["scope"] = cases.scope
    found["individual"] = cases.individual
    for mode in ("transacted", *MODES):
        found[f"left {mode}"] = lambda mode=mode: cases.left(mode)
    found["refusals"] = cases.refusals
    found["uri"] = cases.uri
    return found

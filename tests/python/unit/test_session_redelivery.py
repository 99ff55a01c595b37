"""Messages that are delivered again, and those that are not any more: order, counts, dead letters,
delays (each at least as long as it must be)."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pyqstore
from pyqstore import session as jms

from ..support import wait_until
from .either import connect

pytestmark = pytest.mark.faces("sync", "aio")

QUICK: dict[str, Any] = {"initial_redelivery_delay": 0.01, "redelivery_delay": 0.01}


@pytest.fixture(name="connect")
def connecting(store: pyqstore.Store) -> Iterator[Callable[..., jms.Connection]]:
    opened: list[jms.Connection] = []

    def make(**policy: Any) -> jms.Connection:
        policy = QUICK | policy
        opened.append(connect(store, redelivery=jms.RedeliveryPolicy(**policy)))
        return opened[-1]

    yield make
    for connection in opened:
        connection.close()


def send(session: jms.Session, to: jms.Destination, *bodies: str, **kind: Any) -> None:
    producer = session.producer(to)
    for body in bodies:
        producer.send(body, **kind)
    if session.transacted:
        session.commit()


def told(message: jms.Message | None) -> tuple[str, bool, int] | None:
    return None if message is None else (message.text, message.redelivered, message.delivery_count)


def take(consumer: jms.Consumer, count: int) -> list[tuple[str, bool, int] | None]:
    return [told(consumer.receive(timeout=20)) for _ in range(count)]


def rest(consumer: jms.Consumer) -> list[tuple[str, bool, int] | None]:
    found = []
    while (message := consumer.receive(timeout=0)) is not None:
        found.append(told(message))
    return found


def test_policy_gives_the_delays_that_activemq_gives() -> None:
    plain = jms.RedeliveryPolicy(initial_redelivery_delay=3, redelivery_delay=7)
    assert [plain.delay(n) for n in (1, 2, 3)] == [3, 7, 7]
    backing_off = jms.RedeliveryPolicy(
        initial_redelivery_delay=20,
        redelivery_delay=20,
        use_exponential_back_off=True,
        back_off_multiplier=2,
        maximum_redelivery_delay=200,
    )
    assert [backing_off.delay(n) for n in range(1, 7)] == [20, 40, 80, 160, 200, 200]
    assert jms.RedeliveryPolicy(use_exponential_back_off=True).delay(3) == 25.0
    assert jms.RedeliveryPolicy(use_exponential_back_off=True).delay(10**6) > 1e100
    unused = jms.RedeliveryPolicy(back_off_multiplier=2)  # until it is switched on
    assert [unused.delay(n) for n in (1, 2, 3)] == [1, 1, 1]


def test_collision_avoidance_varies_the_delays_within_its_factor() -> None:
    policy = jms.RedeliveryPolicy(use_collision_avoidance=True, redelivery_delay=100)
    delays = [policy.delay(2) for _ in range(200)]
    assert all(85 <= delay <= 115 for delay in delays)
    assert len(set(delays)) > 100
    assert policy.delay(1) == 1.0


def test_policy_allows_as_many_deliveries_as_it_says() -> None:
    allowed = jms.RedeliveryPolicy().allows
    assert [allowed(n) for n in (1, 6, 7, 8)] == [True, True, False, False]
    assert jms.RedeliveryPolicy(maximum_redeliveries=-1).allows(10**9)
    assert not jms.RedeliveryPolicy(maximum_redeliveries=0).allows(1)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"maximum_redeliveries": -2}, ValueError),
        ({"maximum_redeliveries": 1.5}, TypeError),
        ({"initial_redelivery_delay": -1}, ValueError),
        ({"redelivery_delay": float("nan")}, ValueError),
        ({"redelivery_delay": "1"}, TypeError),
        ({"maximum_redelivery_delay": -2}, ValueError),
        ({"collision_avoidance_factor": 1.5}, ValueError),
    ],
)
def test_policy_refuses_what_makes_no_sense(wrong: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(wrong))):
        jms.RedeliveryPolicy(**wrong)


def test_a_rollback_redelivers_all_in_order_after_the_delay(
    connect: Callable[..., jms.Connection],
) -> None:
    session = connect(initial_redelivery_delay=0.3).session("transacted")
    source = session.queue("q")
    send(session, source, *"abcde")
    consumer = session.consumer(source)
    assert take(consumer, 3) == [("a", False, 1), ("b", False, 1), ("c", False, 1)]
    begin = time.monotonic()
    session.rollback()
    again = [("a", True, 2), ("b", True, 2), ("c", True, 2), ("d", False, 1)]
    assert take(consumer, 4) == again
    assert time.monotonic() - begin >= 0.3
    session.rollback()
    assert take(consumer, 2) == [("a", True, 3), ("b", True, 3)]
    session.rollback()  # with some that were not handed out again
    assert take(consumer, 5) == [
        ("a", True, 4),
        ("b", True, 4),
        ("c", True, 3),
        ("d", True, 2),
        ("e", False, 1),
    ]
    session.commit()
    assert consumer.receive(timeout=0) is None


def test_others_wait_behind_what_was_rolled_back(connect: Callable[..., jms.Connection]) -> None:
    session = connect(initial_redelivery_delay=3600).session("transacted")
    source = session.queue("q")
    send(session, source, *"ab")
    consumer = session.consumer(source)
    assert take(consumer, 1) == [("a", False, 1)]
    session.rollback()
    assert consumer.receive(timeout=0) is None


def test_a_rollback_drops_what_was_sent(connect: Callable[..., jms.Connection]) -> None:
    session = connect().session("transacted")
    source = session.queue("q")
    producer = session.producer(source)
    producer.send("a")
    session.rollback()
    producer.send("b")
    consumer = session.consumer(source)
    assert consumer.receive(timeout=0) is None  # not before the commit
    session.commit()
    assert take(consumer, 1) == [("b", False, 1)]


def test_consumers_of_a_session_share_its_transaction(
    connect: Callable[..., jms.Connection],
) -> None:
    session = connect().session("transacted")
    one, two = session.queue("one"), session.queue("two")
    send(session, one, "a")
    send(session, two, "b")
    first, second = session.consumer(one), session.consumer(two)
    assert take(first, 1) + take(second, 1) == [("a", False, 1), ("b", False, 1)]
    session.rollback()
    assert take(first, 1) + take(second, 1) == [("a", True, 2), ("b", True, 2)]
    session.commit()
    session.rollback()
    assert first.receive(timeout=0) is second.receive(timeout=0) is None


def test_a_failed_commit_rolls_back_and_raises(
    store: pyqstore.Store, connect: Callable[..., jms.Connection]
) -> None:
    with store.channel() as channel:
        channel.queue_declare(
            "full", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
        )
    session = connect().session("transacted")
    source = session.queue("q")
    send(session, source, *"abcd")
    consumer = session.consumer(source)
    assert take(consumer, 2) == [("a", False, 1), ("b", False, 1)]
    full, other = session.producer(session.queue("full")), session.producer(session.queue("other"))
    other.send("x")
    full.send("y")
    full.send("z")
    with pytest.raises(jms.TransactionRolledBack, match="was rolled back"):
        session.commit()
    assert store.queue_status("other").messages_ready == 0
    assert store.queue_status("full").messages_ready == 0
    assert [text for text, _, _ in filter(None, take(consumer, 4))] == list("abcd")
    full.send("y")
    session.commit()
    assert store.queue_status("full").messages_ready == 1
    assert consumer.receive(timeout=0) is None


@pytest.mark.parametrize("mode", ["client", "individual"])
def test_recover_redelivers_what_is_not_acknowledged(
    connect: Callable[..., jms.Connection], mode: str
) -> None:
    session = connect().session(mode)
    source = session.queue("q")
    send(session, source, *"abcd")
    consumer = session.consumer(source)
    first = consumer.receive(timeout=20)
    second = consumer.receive(timeout=20)
    assert first is not None
    assert second is not None
    session.recover()
    if mode == "individual":
        with pytest.raises(jms.IllegalState, match="taken back"):
            second.acknowledge()
    assert take(consumer, 3) == [("a", True, 2), ("b", True, 2), ("c", False, 1)]
    session.recover()
    assert take(consumer, 4) == [("a", True, 3), ("b", True, 3), ("c", True, 2), ("d", False, 1)]


@pytest.mark.faces("sync")
def test_recover_in_a_listener_redelivers_its_message(
    connect: Callable[..., jms.Connection],
) -> None:
    session = connect().session()
    source = session.queue("q")
    seen = []

    def listen(message: jms.Message) -> None:
        seen.append(told(message))
        if message.text == "a" and message.delivery_count == 1:
            session.recover()

    session.consumer(source).listener = listen
    with connect().session() as other:
        send(other, source, *"ab")
    wait_until(lambda: len(seen) == 3)
    assert seen == [("a", False, 1), ("a", True, 2), ("b", False, 1)]


@pytest.mark.parametrize("blocking", [True, pytest.param(False, marks=pytest.mark.clock)])
@pytest.mark.parametrize("persistent", [True, False])
def test_a_message_that_always_fails_becomes_a_dead_letter(
    connect: Callable[..., jms.Connection], store: pyqstore.Store, blocking: bool, persistent: bool
) -> None:
    connection = connect(
        maximum_redeliveries=2,
        initial_redelivery_delay=0.05,
        redelivery_delay=0.05,
        non_blocking_redelivery=not blocking,
    )
    session = connection.session()
    source = session.queue("q")
    with connection.session() as other:
        send(other, source, "x", "y", persistent=persistent, properties={"size": 3})
    seen = []

    def listen(message: jms.Message) -> None:
        seen.append(told(message))
        if message.text == "x":
            raise ValueError("it is x")

    session.consumer(source).listener = listen
    wait_until(lambda: len(seen) == 4)
    session.close()
    y = ("y", False, 1)
    x = [("x", False, 1), ("x", True, 2), ("x", True, 3)]
    assert seen == ([*x, y] if blocking else [x[0], y, *x[1:]])
    assert store.queue_status("q").messages_ready == 0
    with connection.session() as other:
        dead = other.consumer(other.queue("ActiveMQ.DLQ")).receive(timeout=0)
    if not persistent:
        assert dead is None
        return
    assert dead is not None
    assert dead.text == "x"
    assert dead.properties["size"] == 3
    assert dead.properties["dlqOriginalDestination"] == "q"
    cause = dead.properties["dlqDeliveryFailureCause"]
    assert cause == "delivery 3 was the last: its listener raised ValueError('it is x')"


@pytest.mark.faces("sync")
def test_dead_letters_go_where_the_connection_says(store: pyqstore.Store) -> None:
    uri = f"qstore://{store.path}?deadLetterQueue=dead&redeliveryPolicy.maximumRedeliveries=0"
    store.close()
    with jms.connect(uri) as connection:
        session = connection.session("client")
        source = session.queue("q")
        send(session, source, "a", "b")
        consumer = session.consumer(source)
        assert take(consumer, 1) == [("a", False, 1)]
        session.recover()
        assert rest(consumer) == [("b", False, 1)]
        session.close()
        other = connection.session()
        assert take(other.consumer(other.queue("dead")), 1) == [("a", False, 1)]


def test_a_message_that_the_dead_letters_do_not_take_is_redelivered(
    store: pyqstore.Store, connect: Callable[..., jms.Connection]
) -> None:
    with store.channel() as channel:
        full = {"x-max-length": 1, "x-overflow": "reject-publish"}
        channel.queue_declare("ActiveMQ.DLQ", durable=True, arguments=full)
    session = connect(maximum_redeliveries=0).session("client")
    source = session.queue("q")
    send(session, source, "a", "b", "c")
    send(session, session.queue("ActiveMQ.DLQ"), "earlier")
    consumer = session.consumer(source)
    assert take(consumer, 2) == [("a", False, 1), ("b", False, 1)]
    session.recover()
    assert take(consumer, 3) == [("a", True, 2), ("b", True, 2), ("c", False, 1)]
    with store.channel() as channel:
        channel.queue_purge("ActiveMQ.DLQ")
    session.recover()
    assert take(consumer, 2) == [("b", True, 3), ("c", True, 2)]  # one fits, in their order
    assert store.queue_status("ActiveMQ.DLQ").messages_ready == 1


def test_a_message_that_was_delivered_too_often_before_is_not_handed_out_in_a_transaction(
    connect: Callable[..., jms.Connection],
) -> None:
    connection = connect(maximum_redeliveries=1)
    with connection.session() as session:
        source = session.queue("q")
        send(session, source, "a", "b")
    for count in (1, 2):  # consumers that ended without a word
        session = connection.session("transacted")
        assert take(session.consumer(source), 1) == [("a", count > 1, count)]
        session.close()
    session = connection.session("transacted")
    assert take(session.consumer(source), 1) == [("b", False, 1)]
    session.commit()
    dead = session.consumer(session.queue("ActiveMQ.DLQ"))
    assert take(dead, 1) == [("a", False, 1)]


@pytest.mark.faces("sync")
@pytest.mark.parametrize("mode", ["auto", "client", "dups_ok", "individual"])
def test_a_blocked_consumer_delivers_when_the_delay_is_over(
    connect: Callable[..., jms.Connection], mode: str
) -> None:
    connection = connect(initial_redelivery_delay=0.25)
    session = connection.session(mode)
    source = session.queue("q")
    times = []

    def listen(message: jms.Message) -> None:
        times.append(time.monotonic())
        if len(times) == 1:
            if mode == "client":
                session.recover()
            else:
                raise ValueError("once")

    session.consumer(source).listener = listen
    with connection.session() as other:
        send(other, source, "a")
    wait_until(lambda: len(times) == 2)
    assert times[1] - times[0] >= 0.25


def test_a_message_that_expires_in_the_buffer_is_not_handed_out(
    store: pyqstore.Store, connect: Callable[..., jms.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = connect()
    session = connection.session()
    source = session.queue("q")
    send(session, source, "first")
    due = int(time.time() * 1000) + 600_000
    with store.channel() as channel:  # the engine lets it live longer than its producer says
        over = pyqstore.Properties(headers={"JMSExpiration": due}, expiration=3_600_000)
        channel.basic_publish("", "q", b"short", over.replace(delivery_mode=2))
    send(session, source, "last")
    consumer = session.consumer(source)
    assert take(consumer, 1) == [("first", False, 1)]
    assert len(consumer.buffer) == 2
    with monkeypatch.context() as later:
        later.setattr(time, "time", lambda: due / 1000 + 1)
        assert take(consumer, 1) == [("last", False, 1)]
    with connection.session() as other:
        dead = other.consumer(other.queue("ActiveMQ.DLQ")).receive(timeout=20)
    assert dead is not None
    assert dead.text == "short"
    assert "expired" in str(dead.properties["dlqDeliveryFailureCause"])


def test_what_a_closed_consumer_had_delivered_is_redelivered_to_another(
    connect: Callable[..., jms.Connection],
) -> None:
    connection = connect()
    session = connection.session("client")
    source = session.queue("q")
    send(session, source, *"abc")
    consumer = session.consumer(source)
    message = consumer.receive(timeout=20)
    assert message is not None
    consumer.close()
    another = session.consumer(source)
    assert take(another, 2) == [("b", False, 1), ("c", False, 1)]
    session.recover()
    assert sorted(filter(None, take(another, 3))) == [
        ("a", True, 2),
        ("b", True, 2),
        ("c", True, 2),
    ]
    message.acknowledge()  # all that the session has delivered
    assert another.receive(timeout=0) is None

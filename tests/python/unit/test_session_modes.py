"""What each acknowledgement mode does, and when: the table of docs/SESSIONS.md, row by row.

Acknowledgements are counted by the store, when each message is handed out.
"""

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pyqstore
from pyqstore import session as jms

from ..support import wait_until
from .either import connect, threads

pytestmark = pytest.mark.faces("sync", "aio")

QUICK = jms.RedeliveryPolicy(initial_redelivery_delay=0.01, redelivery_delay=0.01)
SOON_S = 0.2
MODES = ("auto", "client", "dups_ok", "transacted", "individual")


@pytest.fixture
def connection(store: pyqstore.Store) -> Iterator[jms.Connection]:
    with connect(store, redelivery=QUICK) as connection:
        yield connection


@pytest.fixture
def acked(store: pyqstore.Store) -> Callable[[], int]:
    return lambda: threads(store).stats()["messages_acked"]


def send(connection: jms.Connection, to: jms.Destination, *bodies: str, **kind: Any) -> None:
    with connection.session() as session:
        producer = session.producer(to)
        for body in bodies:
            producer.send(body, **kind)


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def batch_of(mode: str, optimize: bool, topic: bool, prefetch: int) -> int:
    """How many are acknowledged at once; 0: none without being told to."""
    if mode in ("client", "individual", "transacted"):
        return 0
    if mode == "dups_ok" and topic:
        return max(1, prefetch // 2)
    return -(-prefetch * 65 // 100) if optimize else 1


def destination_of(session: jms.Session, topic: bool) -> jms.Destination:
    return session.topic("d") if topic else session.queue("d")


COMBINATIONS = [
    *itertools.product(
        ("auto", "client", "dups_ok", "individual", "transacted"),
        (False, True),
        (False, True),
        (False, True),
        (20,),
    ),
    ("auto", True, False, False, 1),
    ("dups_ok", True, True, False, 1),
]


@pytest.mark.parametrize(("mode", "optimize", "topic", "listener", "prefetch"), COMBINATIONS)
def test_messages_are_acknowledged_when_the_mode_says(
    connection: jms.Connection,
    acked: Callable[[], int],
    mode: str,
    optimize: bool,
    topic: bool,
    listener: bool,
    prefetch: int,
) -> None:
    count = 5 * prefetch
    session = connection.session(mode)
    source = destination_of(session, topic)
    consumer = session.consumer(
        source, prefetch=prefetch, optimize_acknowledge=optimize, optimize_timeout=0
    )
    batch = batch_of(mode, optimize, topic, prefetch)
    # By hand: it gets no more than its window, which has grown once.
    most = count if batch else prefetch + prefetch // 2
    seen: list[int] = []
    if listener:
        consumer.listener = lambda message: seen.append(acked())
    send(connection, source, *numbers(count), persistent=False)
    if listener:
        wait_until(lambda: len(seen) == most)
        wait_until(lambda: acked() == (most // batch * batch if batch else 0))
        consumer.listener = None
    else:
        for _ in range(most):
            assert consumer.receive(timeout=20) is not None
            seen.append(acked())
    before = 0 if listener else 1  # receive acknowledges before it returns
    assert seen == [(i + before) // batch * batch if batch else 0 for i in range(most)]
    if not batch:
        assert consumer.receive(timeout=0) is None
    session.close()
    assert acked() == (count if batch else 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("topic", [False, True])
def test_a_message_whose_listener_raises_is_redelivered_as_the_mode_says(
    connection: jms.Connection, acked: Callable[[], int], mode: str, topic: bool
) -> None:
    session = connection.session(mode)
    source = destination_of(session, topic)
    consumer = session.consumer(source)
    seen: list[tuple[str, bool, int]] = []
    left = 2

    def listen(message: jms.Message) -> None:
        nonlocal left
        seen.append((message.text, message.redelivered, message.delivery_count))
        if message.text == "b" and left:
            left -= 1
            raise ValueError("no")

    consumer.listener = listen
    send(connection, source, "a", "b", "c")
    once = [("a", False, 1), ("b", False, 1), ("c", False, 1)]
    again = [("b", True, 2), ("b", True, 3)]
    if mode in ("client", "transacted") or (mode == "dups_ok" and topic):
        expected = once
    elif mode == "individual":  # all that the consumer has and has not acknowledged
        both = [[("a", True, count), ("b", True, count)] for count in (2, 3)]
        expected = [*once[:2], *both[0], *both[1], once[2]]
    else:
        expected = [*once[:2], *again, once[2]]
    wait_until(lambda: len(seen) >= len(expected))
    session.close()
    assert seen == expected
    batch = batch_of(mode, False, topic, 1000)
    assert acked() == (3 if batch else 0)


def test_a_listener_that_raises_is_logged(
    connection: jms.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    session = connection.session()
    source = session.queue("q")

    def listen(message: jms.Message) -> None:
        raise ValueError(f"I do not like {message.text}")

    with caplog.at_level(logging.WARNING, "pyqstore"):
        session.consumer(source).listener = listen
        send(connection, source, "this")
        wait_until(lambda: "I do not like this" in caplog.text)
        session.close()


def test_client_acknowledges_all_that_its_session_has_delivered(
    connection: jms.Connection, acked: Callable[[], int]
) -> None:
    session = connection.session("client")
    one, two = session.queue("one"), session.queue("two")
    send(connection, one, *numbers(3))
    send(connection, two, *numbers(2))
    first, second = session.consumer(one), session.consumer(two)
    message = first.receive(timeout=20)
    assert message is not None
    assert first.receive(timeout=20) is not None
    assert second.receive(timeout=20) is not None
    message.acknowledge()
    assert acked() == 3
    assert first.receive(timeout=20) is not None
    message.acknowledge()  # any message stands for the session
    assert acked() == 4


def test_individual_acknowledges_one(connection: jms.Connection, acked: Callable[[], int]) -> None:
    session = connection.session("individual")
    source = session.queue("q")
    send(connection, source, *numbers(3))
    consumer = session.consumer(source)
    taken = [consumer.receive(timeout=20) for _ in range(3)]
    assert taken[1] is not None
    taken[1].acknowledge()
    taken[1].acknowledge()  # once
    assert acked() == 1
    session.close()
    with connection.session() as other:
        rest = other.consumer(source)
        left = [rest.receive(timeout=20) for _ in range(2)]
        assert [message.text for message in left if message is not None] == ["0", "2"]
        assert rest.receive(timeout=0) is None


@pytest.mark.parametrize("mode", ["auto", "dups_ok", "transacted"])
def test_acknowledge_does_nothing_in_other_modes(
    connection: jms.Connection, acked: Callable[[], int], mode: str
) -> None:
    session = connection.session(mode)
    source = session.queue("q")
    send(connection, source, "a")
    message = session.consumer(source).receive(timeout=20)
    assert message is not None
    before = acked()
    message.acknowledge()
    assert acked() == before
    session.close()
    with pytest.raises(jms.IllegalState, match="The Session is closed"):
        message.acknowledge()


@pytest.mark.parametrize("mode", ["client", "individual", "transacted"])
@pytest.mark.parametrize("prefetch", [1, 3, 20])
def test_the_window_grows_once_and_an_acknowledgement_opens_it_again(
    connection: jms.Connection, caplog: pytest.LogCaptureFixture, mode: str, prefetch: int
) -> None:
    session = connection.session(mode)
    source = session.queue("q")
    send(connection, source, *numbers(4 * prefetch), persistent=False)
    consumer = session.consumer(source, prefetch=prefetch)
    window = prefetch + -(-prefetch // 2)
    for _ in range(2):
        taken = []
        while (message := consumer.receive(timeout=0)) is not None:
            taken.append(message)
        assert len(taken) == window
        assert consumer.buffer.most <= window
        if mode == "transacted":
            session.commit()
        else:
            for message in taken:
                message.acknowledge()
    assert f"{window} messages that are not acknowledged" in caplog.text


def test_the_window_has_only_prefetch_messages_until_half_of_them_are_delivered(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    session = connection.session("client")
    source = session.queue("q")
    send(connection, source, *numbers(100), persistent=False)
    consumer = session.consumer(source, prefetch=20)
    unacked = []
    for delivered in range(1, 31):
        assert consumer.receive(timeout=20) is not None
        if delivered == 10:
            wait_until(lambda: store.queue_status("q").messages_unacked == 30)
        unacked.append(store.queue_status("q").messages_unacked)
    assert unacked == [20] * 9 + [30] * 21


@pytest.mark.parametrize("mode", ["client", "individual", "transacted"])
def test_a_consumer_that_does_not_acknowledge_leaves_messages_to_others(
    connection: jms.Connection, mode: str
) -> None:
    stalled, other = connection.session(mode), connection.session()
    source = stalled.queue("q")
    slow = stalled.consumer(source, prefetch=2)
    send(connection, source, *numbers(6))
    for _ in range(3):
        assert slow.receive(timeout=20) is not None
    assert slow.receive(timeout=0) is None
    quick = other.consumer(source)
    taken = [quick.receive(timeout=20) for _ in range(3)]
    assert [message.text for message in taken if message is not None] == ["3", "4", "5"]


@pytest.mark.parametrize("mode", MODES)
def test_a_prefetch_of_zero_fetches_one_at_a_time(
    store: pyqstore.Store, connection: jms.Connection, mode: str
) -> None:
    session = connection.session(mode)
    source = session.queue("q")
    send(connection, source, *numbers(3))
    consumer = session.consumer(source, prefetch=0)
    for number in range(3):
        message = consumer.receive(timeout=20)
        assert message is not None
        assert message.text == str(number)
        assert store.queue_status("q").messages_ready == 2 - number
    assert consumer.receive(timeout=0) is None
    send(connection, source, "later")  # nobody waits: it stays for whoever comes
    assert store.queue_status("q").messages_ready == 1
    with connection.session() as other, other.consumer(source) as another:
        message = another.receive(timeout=20)
        assert message is not None
        assert message.text == "later"


def test_a_pull_waits_for_a_message(connection: jms.Connection) -> None:
    session = connection.session()
    source = session.queue("q")
    consumer = session.consumer(source, prefetch=0)
    sender = threading.Timer(0.05, send, (connection, source, "a"))
    sender.start()
    message = consumer.receive(timeout=20)
    sender.join()
    assert message is not None
    assert message.text == "a"


def test_a_prefetch_of_zero_refuses_listeners_and_batches(connection: jms.Connection) -> None:
    session = connection.session()
    consumer = session.consumer(session.queue("q"), prefetch=0)
    with pytest.raises(ValueError, match="Illegal prefetch size of zero"):
        consumer.listener = print
    with pytest.raises(ValueError, match="optimize_acknowledge needs a prefetch"):
        session.consumer(session.queue("q"), prefetch=0, optimize_acknowledge=True)
    with pytest.raises(ValueError, match="prefetch must be 0 or more"):
        session.consumer(session.queue("q"), prefetch=-1)


def test_receive_is_refused_where_a_session_has_a_listener(connection: jms.Connection) -> None:
    session = connection.session()
    listening = session.consumer(session.queue("one"))
    other = session.consumer(session.queue("two"))
    listening.listener = print
    for consumer in (listening, other):
        with pytest.raises(jms.IllegalState, match="Cannot synchronously receive"):
            consumer.receive(timeout=0)
    listening.listener = None
    assert other.receive(timeout=0) is None


@pytest.mark.clock
def test_a_batch_is_acknowledged_when_a_message_comes_after_its_time(
    connection: jms.Connection, acked: Callable[[], int]
) -> None:
    session = connection.session()
    source = session.queue("q")
    send(connection, source, *numbers(3))
    consumer = session.consumer(source, optimize_acknowledge=True, optimize_timeout=SOON_S)
    assert consumer.receive(timeout=20) is not None
    assert consumer.receive(timeout=3 * SOON_S) is not None
    with pytest.raises(AssertionError):  # nobody consumes: nobody looks at the time
        wait_until(lambda: acked() > 0, seconds=2 * SOON_S)
    assert consumer.receive(timeout=20) is not None
    assert acked() == 3


@pytest.mark.parametrize("mode", MODES)
def test_what_was_pushed_and_not_handed_out_does_not_count(
    connection: jms.Connection, mode: str
) -> None:
    session = connection.session(mode)
    source = session.queue("q")
    send(connection, source, *numbers(4))
    consumer = session.consumer(source)
    assert consumer.receive(timeout=20) is not None
    assert len(consumer.buffer) == 3
    session.close()
    with connection.session() as other:
        rest = other.consumer(source)
        seen = []
        while (message := rest.receive(timeout=0)) is not None:
            seen.append((message.text, message.redelivered, message.delivery_count))
    first = [] if mode in ("auto", "dups_ok") else [("0", True, 2)]
    assert seen == [*first, ("1", False, 1), ("2", False, 1), ("3", False, 1)]


def test_large_bodies_end_a_push_before_the_window_is_full(connection: jms.Connection) -> None:
    session = connection.session()
    source = session.queue("q")
    producer = session.producer(source)
    for _ in range(12):
        producer.send(bytes(3 << 20), persistent=False)
    consumer = session.consumer(source)
    assert consumer.receive(timeout=20) is not None
    assert len(consumer.buffer) == 7
    assert all(consumer.receive(timeout=20) is not None for _ in range(11))
    assert consumer.buffer.most == 8

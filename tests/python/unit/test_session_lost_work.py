"""What a session does with work on a channel that ended behind its user's back: who commits or
acknowledges it is told, and nothing is lost."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

import pyqstore
from pyqstore import Properties, aio
from pyqstore import session as jms

from ..support import wait_until
from .either import connect, threads

pytestmark = pytest.mark.faces("sync", "aio")

AT_ONCE = jms.RedeliveryPolicy(initial_redelivery_delay=0, redelivery_delay=0)
_UNKNOWN_TAG = 10**6
_EXPIRED_MS = 1
_PATIENCE_S = 20

End = Callable[[pyqstore.Store, jms.Connection, jms.Session], object]


@pytest.fixture
def connection(store: pyqstore.Store) -> Iterator[jms.Connection]:
    with connect(store, redelivery=AT_ONCE) as connection:
        yield connection


# What ends the channel of a session: each in a way that its user can run into and go on from.


def send_refused(store: pyqstore.Store, connection: jms.Connection, session: jms.Session) -> None:
    producer = session.producer(session.queue("out"))
    with pytest.raises(pyqstore.PreconditionFailed, match="unacceptable_type_in_header"):
        producer.send(b"refused", properties={"CC": "x"})


def send_to_nobody(store: pyqstore.Store, connection: jms.Connection, session: jms.Session) -> None:
    producer = session.producer(session.groups("groups", 1))
    with store.channel() as channel:
        channel.exchange_delete("groups")
    with pytest.raises(pyqstore.NotFound):
        producer.send(b"refused")


def consume_refused(
    store: pyqstore.Store, connection: jms.Connection, session: jms.Session
) -> None:
    taken = "taken?consumer.exclusive=true"
    with (
        connection.session() as other,
        other.consumer(other.queue(taken)),
        pytest.raises(pyqstore.AccessRefused),
    ):
        session.consumer(session.queue("taken"))


def anything_else(store: pyqstore.Store, connection: jms.Connection, session: jms.Session) -> None:
    link = threads(session)._link
    with link.lock, pytest.raises(pyqstore.PreconditionFailed):
        link.channel.basic_ack(_UNKNOWN_TAG)


ENDS: list[End] = [send_refused, send_to_nobody, consume_refused, anything_else]
each_end = pytest.mark.parametrize("end", ENDS)


def fill(store: pyqstore.Store, *bodies: bytes) -> None:
    queue = store.queue("in")
    for body in bodies:
        queue.put(body)


def taken(consumer: jms.Consumer, text: str) -> jms.Message:
    message = consumer.receive(_PATIENCE_S)
    assert message is not None
    assert message.text == text
    return message


def texts(store: pyqstore.Store, queue: str) -> list[str]:
    return [message.body.decode() for message in store.queue(queue).peek(100)]


@each_end
def test_a_commit_says_that_what_was_sent_before_an_error_is_lost(
    store: pyqstore.Store, connection: jms.Connection, end: End
) -> None:
    session = connection.session("transacted")
    out = session.producer(session.queue("out"))
    out.send(b"1")
    end(store, connection, session)
    out.send(b"3")
    with pytest.raises(jms.TransactionRolledBack) as raised:
        session.commit()
    assert isinstance(raised.value.__cause__, pyqstore.Error)
    assert texts(store, "out") == []
    out.send(b"4")
    session.commit()
    assert texts(store, "out") == ["4"]


@each_end
@pytest.mark.parametrize("style", ["open", "closed"])
def test_a_commit_says_that_what_was_received_before_an_error_is_taken_back(
    store: pyqstore.Store, connection: jms.Connection, end: End, style: str
) -> None:
    fill(store, b"a", b"b")
    session = connection.session("transacted")
    consumer = session.consumer(session.queue("in"), prefetch=1)
    out = session.producer(session.queue("out"))
    taken(consumer, "a")
    if style == "closed":
        consumer.close()
    end(store, connection, session)
    out.send(b"of a")
    if style == "open":
        assert taken(consumer, "a").redelivered
    with pytest.raises(jms.TransactionRolledBack):
        session.commit()
    assert texts(store, "out") == []
    if style == "closed":
        consumer = session.consumer(session.queue("in"))
    assert taken(consumer, "a").redelivered
    taken(consumer, "b")
    out.send(b"of both")
    session.commit()
    assert texts(store, "out") == ["of both"]
    assert store.queue_status("in").messages_unacked == 0
    assert texts(store, "in") == []


@each_end
def test_an_error_at_the_first_send_of_a_transaction_takes_nothing_from_it(
    store: pyqstore.Store, connection: jms.Connection, end: End
) -> None:
    session = connection.session("transacted")
    out = session.producer(session.queue("out"))
    end(store, connection, session)
    out.send(b"3")
    session.commit()
    assert texts(store, "out") == ["3"]


@each_end
def test_a_rollback_after_an_error_is_one_and_the_next_commit_commits(
    store: pyqstore.Store, connection: jms.Connection, end: End
) -> None:
    fill(store, b"a")
    session = connection.session("transacted")
    consumer = session.consumer(session.queue("in"))
    out = session.producer(session.queue("out"))
    taken(consumer, "a")
    out.send(b"1")
    end(store, connection, session)
    session.rollback()
    assert taken(consumer, "a").redelivered
    out.send(b"2")
    session.commit()
    assert texts(store, "out") == ["2"]
    assert store.queue_status("in").messages_unacked == 0


@each_end
def test_acknowledge_says_that_a_message_was_taken_back_in_client_mode(
    store: pyqstore.Store, connection: jms.Connection, end: End
) -> None:
    fill(store, b"a", b"b")
    session = connection.session("client")
    consumer = session.consumer(session.queue("in"))
    first, second = taken(consumer, "a"), taken(consumer, "b")
    end(store, connection, session)
    for _ in range(2):
        for message in (first, second):
            with pytest.raises(jms.IllegalState, match="taken back"):
                message.acknowledge()
    taken(consumer, "a")
    again = taken(consumer, "b")
    assert again.redelivered
    with pytest.raises(jms.IllegalState, match="taken back"):
        first.acknowledge()
    again.acknowledge()
    assert store.queue_status("in").messages_unacked == 0
    assert texts(store, "in") == []


@each_end
def test_acknowledge_says_so_when_it_stands_for_messages_that_were_taken_back(
    store: pyqstore.Store, connection: jms.Connection, end: End
) -> None:
    fill(store, b"a", b"b")
    session = connection.session("client")
    consumer = session.consumer(session.queue("in"))
    first = taken(consumer, "a")
    first.acknowledge()
    taken(consumer, "b")
    end(store, connection, session)
    with pytest.raises(jms.IllegalState, match="taken back"):
        first.acknowledge()
    assert taken(consumer, "b").redelivered
    first.acknowledge()  # stands for the session as before
    assert store.queue_status("in").messages_unacked == 0


@each_end
def test_acknowledge_says_that_a_message_was_taken_back_in_individual_mode(
    store: pyqstore.Store, connection: jms.Connection, end: End
) -> None:
    fill(store, b"a")
    session = connection.session("individual")
    consumer = session.consumer(session.queue("in"))
    message = taken(consumer, "a")
    end(store, connection, session)
    with pytest.raises(jms.IllegalState, match="taken back"):
        message.acknowledge()
    taken(consumer, "a").acknowledge()
    assert store.queue_status("in").messages_unacked == 0


@each_end
@pytest.mark.parametrize("mode", ["auto", "client", "dups_ok", "individual", "transacted"])
def test_a_session_goes_on_after_its_channel_ended_whatever_it_does_next(
    store: pyqstore.Store, connection: jms.Connection, end: End, mode: str
) -> None:
    verbs: list[Callable[[jms.Session, jms.Consumer, jms.Producer], object]] = [
        lambda session, consumer, producer: consumer.receive(_PATIENCE_S),
        lambda session, consumer, producer: producer.send(b"x"),
        lambda session, consumer, producer: session.consumer(session.queue("more")),
        lambda session, consumer, producer: (
            session.rollback() if session.transacted else session.recover()
        ),
        lambda session, consumer, producer: consumer.close(),
    ]
    for verb in verbs:
        store.queue("in").purge()
        fill(store, b"a", b"b")
        with connection.session(mode) as session:
            consumer = session.consumer(session.queue("in"))
            taken(consumer, "a")
            end(store, connection, session)
            verb(session, consumer, session.producer(session.queue("out")))
            with connection.session() as other:
                other.producer(other.queue("again")).send(b"c")
            taken(session.consumer(session.queue("again")), "c")
            store.queue("again").purge()


@pytest.mark.faces("sync")
def test_a_listener_whose_send_is_refused_gets_its_message_again(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    fill(store, b"a", b"b")
    session = connection.session()
    out = session.producer(session.queue("out"))
    seen: list[tuple[str, bool]] = []

    def listen(message: jms.Message) -> None:
        if not seen:
            with pytest.raises(pyqstore.PreconditionFailed):
                out.send(b"refused", properties={"CC": "x"})
        seen.append((message.text, message.redelivered))
        if len(seen) == 3:
            consumer.close()

    consumer = session.consumer(session.queue("in"), prefetch=1)
    consumer.listener = listen
    wait_until(lambda: len(seen) == 3 and consumer.closed)
    assert seen == [("a", False), ("a", True), ("b", False)]
    assert texts(store, "in") == []


def test_dead_letters_that_end_the_channel_are_told_to_the_transaction(
    store: pyqstore.Store, connection: jms.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = Properties(headers={"JMSExpiration": _EXPIRED_MS}, delivery_mode=2, expiration=600_000)
    fill(store, b"a")
    with store.channel() as channel:
        channel.basic_publish("", "in", b"over", over)
    fill(store, b"b")
    session = connection.session("transacted")
    consumer = session.consumer(session.queue("in"))
    taken(consumer, "a")
    with monkeypatch.context() as patch:
        refused = Properties(headers={"CC": "x"}, delivery_mode=2)
        patch.setattr("pyqstore.session.dead_letters._properties", lambda *given: refused)
        assert taken(consumer, "a").redelivered
    with pytest.raises(jms.TransactionRolledBack, match="unacceptable_type_in_header"):
        session.commit()
    taken(consumer, "a")
    taken(consumer, "b")
    session.commit()
    assert texts(store, "in") == []
    assert texts(store, "ActiveMQ.DLQ") == ["over"]


def test_a_rollback_whose_dead_letters_end_the_channel_takes_all_back(
    store: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = jms.RedeliveryPolicy(maximum_redeliveries=0, initial_redelivery_delay=0)
    fill(store, b"a", b"b")
    with connect(store, redelivery=once) as connection:
        session = connection.session("transacted")
        consumer = session.consumer(session.queue("in"))
        taken(consumer, "a")
        taken(consumer, "b")
        with monkeypatch.context() as patch:
            refused = Properties(headers={"CC": "x"}, delivery_mode=2)
            patch.setattr("pyqstore.session.dead_letters._properties", lambda *given: refused)
            session.rollback()
        status = store.queue_status("in")
        assert status.messages_ready + status.messages_unacked == 2
        session.producer(session.queue("out")).send(b"1")
        session.commit()
    assert texts(store, "out") == ["1"]


@pytest.mark.faces("sync")
@pytest.mark.parametrize("then", ["commit", "rollback"])
async def test_a_commit_that_fails_after_its_task_was_cancelled_is_told_to_the_next(
    store: pyqstore.Store, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    async with (
        asyncio.timeout(60),
        aio.session.connect(aio.Store(store), redelivery=AT_ONCE) as connection,
    ):
        session = await connection.session("transacted")
        out = await session.producer(session.queue("out"))
        link = session._twin._link
        commit, began, may_fail = link.commit, threading.Event(), threading.Event()

        def fail_once(tags: list[int]) -> None:
            monkeypatch.setattr(link, "commit", commit)
            began.set()
            assert may_fail.wait(_PATIENCE_S)
            with pytest.raises(pyqstore.PreconditionFailed):
                link.channel.basic_ack(_UNKNOWN_TAG)
            commit(tags)

        await out.send(b"1")
        monkeypatch.setattr(link, "commit", fail_once)
        committing = asyncio.create_task(session.commit())
        await asyncio.to_thread(began.wait)
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
        next_one = asyncio.create_task(getattr(session, then)())
        await asyncio.sleep(0)
        may_fail.set()
        if then == "commit":
            with pytest.raises(jms.TransactionRolledBack):
                await next_one
        else:
            await next_one
        await out.send(b"2")
        await session.commit()
    assert texts(store, "out") == ["2"]

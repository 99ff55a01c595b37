"""Connections, sessions, consumers and producers: opened, closed, while others wait and listen."""

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import pyqstore
from pyqstore import session as jms

from ..support import wait_until
from .either import connect

pytestmark = pytest.mark.faces("sync", "aio")


@pytest.fixture
def connection(store: pyqstore.Store) -> Iterator[jms.Connection]:
    with connect(store) as connection:
        yield connection


def taken(consumer: jms.Consumer, timeout: float = 20) -> jms.Message:
    message = consumer.receive(timeout)
    assert message is not None
    return message


def test_connections_by_uri_share_their_store(path: Path) -> None:
    uri = f"qstore://{path}"
    first, second = jms.connect(uri), jms.connect(f"{uri}?prefetch=3")
    assert first.store is second.store
    first.close()
    first.close()
    session = second.session()
    session.producer(session.queue("q")).send("a")
    assert taken(session.consumer(session.queue("q"))).text == "a"
    second.close()
    assert second.store.closed
    with jms.connect(uri) as third:
        assert third.store is not second.store


def test_a_store_that_was_given_stays_open(store: pyqstore.Store) -> None:
    with connect(store) as connection:
        connection.session()
    assert not store.closed
    with pytest.raises(jms.IllegalState, match="The connection is closed"):
        connection.session()
    with pytest.raises(TypeError, match="connect to a URI"):
        jms.connect(b"qstore:///x")  # type: ignore[arg-type]


def test_a_client_id_belongs_to_one_connection(store: pyqstore.Store) -> None:
    with connect(store, client_id="billing") as connection:
        assert connection.client_id == "billing"
        with pytest.raises(jms.IllegalState, match="'billing' is in use"):
            connect(store, client_id="billing")
    connect(store, client_id="billing").close()


def test_a_mode_that_there_is_not_is_refused(connection: jms.Connection) -> None:
    with pytest.raises(ValueError, match="mode must be one of auto, client"):
        connection.session("automatic")


@pytest.mark.parametrize("owner", ["Session", "connection"])
def test_a_closed_session_refuses_everything(connection: jms.Connection, owner: str) -> None:
    session = connection.session()
    consumer, producer = session.consumer(session.queue("q")), session.producer()
    for _ in range(2):
        (session if owner == "Session" else connection).close()
    assert session.closed
    assert consumer.closed
    for call in (
        session.producer,
        session.recover,
        session.commit,
        session.temporary_queue,
        lambda: session.consumer(session.queue("q")),
        lambda: session.subscribe(session.topic("t")),
        lambda: list(session.browse(session.queue("q"))),
        lambda: producer.send(b"", destination=session.queue("q")),
        lambda: consumer.receive(timeout=0),
        lambda: setattr(consumer, "listener", print),
    ):
        with pytest.raises(jms.IllegalState, match=rf"The (Session|{owner}) is closed"):
            call()
    consumer.close()


@pytest.mark.faces("sync")
def test_a_receive_that_waits_ends_when_its_consumer_is_closed(connection: jms.Connection) -> None:
    for owner in ("consumer", "session", "connection"):
        with jms.connect(connection.store) as own:
            session = own.session()
            consumer = session.consumer(session.queue("q"))
            got: list[jms.Message | None] = []
            thread = threading.Thread(target=lambda c=consumer, g=got: g.append(c.receive()))
            thread.start()
            wait_until(lambda s=session: bool(s._link.watch.waiting))
            {"consumer": consumer, "session": session, "connection": own}[owner].close()
            thread.join(20)
            assert not thread.is_alive()
            assert got == [None]


@pytest.mark.faces("sync")
def test_a_close_waits_for_the_listener_that_runs(connection: jms.Connection) -> None:
    for owner in ("consumer", "session"):
        session = connection.session()
        queue = session.queue(owner)
        consumer = session.consumer(queue)
        began, may_end, ended = threading.Event(), threading.Event(), threading.Event()

        def listen(message: jms.Message, began=began, may_end=may_end, ended=ended) -> None:
            began.set()
            may_end.wait(20)
            ended.set()

        consumer.listener = listen
        with connection.session() as other:
            other.producer(queue).send("a")
            other.producer(queue).send("b")
        assert began.wait(20)
        closing = threading.Thread(target=(consumer if owner == "consumer" else session).close)
        closing.start()
        assert closing.is_alive()
        may_end.set()
        closing.join(20)
        assert ended.is_set()
        assert not closing.is_alive()
        session.close()


@pytest.mark.faces("sync")
def test_a_listener_may_close_its_consumer_and_not_its_session(connection: jms.Connection) -> None:
    session = connection.session()
    consumer = session.consumer(session.queue("q"))
    said: list[str] = []
    done = threading.Event()

    def listen(message: jms.Message) -> None:
        for owner in (session, connection):
            try:
                owner.close()
            except jms.IllegalState as error:
                said.append(str(error))
        consumer.close()
        done.set()

    consumer.listener = listen
    with connection.session() as other:
        other.producer(session.queue("q")).send("a")
        other.producer(session.queue("q")).send("b")
    assert done.wait(20)
    wait_until(lambda: consumer.closed)
    session.close()
    assert said == ["a listener cannot close its own session or connection"] * 2
    with connection.session() as other:
        rest = other.consumer(session.queue("q"))
        assert taken(rest).text == "b"  # the listener has returned: a is acknowledged


def test_listeners_of_a_session_run_one_after_another(connection: jms.Connection) -> None:
    session = connection.session()
    inside, most, count = 0, 0, 0
    threads = set()

    def listen(message: jms.Message) -> None:
        nonlocal inside, most, count
        inside += 1
        most = max(most, inside)
        threads.add(threading.current_thread())
        inside -= 1
        count += 1

    for name in ("one", "two", "three"):
        session.consumer(session.queue(name)).listener = listen
    with connection.session() as other:
        for name in ("one", "two", "three") * 20:
            other.producer(session.queue(name)).send(name, persistent=False)
    wait_until(lambda: count == 60)
    assert most == 1
    assert len(threads) == 1
    assert threading.current_thread() not in threads


@pytest.mark.faces("sync")
def test_a_listener_sends_and_commits(connection: jms.Connection) -> None:
    session = connection.session("transacted")
    source, target = session.queue("in"), session.queue("out")
    answers = session.producer(target)

    def listen(message: jms.Message) -> None:
        answers.send(message.text.upper())
        session.commit()

    session.consumer(source).listener = listen
    with connection.session() as other:
        producer = other.producer(source)
        for body in "abc":
            producer.send(body)
        results = other.consumer(target)
        assert [taken(results).text for _ in range(3)] == ["A", "B", "C"]
    session.close()
    assert connection.store.queue_status("in").messages_ready == 0


def test_a_message_has_what_its_producer_said(connection: jms.Connection) -> None:
    session = connection.session()
    source, answers = session.queue("q"), session.temporary_queue()
    producer = session.producer(source)
    message_id = producer.send(
        "grüße",
        priority=7,
        time_to_live=timedelta(seconds=60),
        properties={"side": "buy", "size": 3},
        correlation_id="c",
        reply_to=answers,
        type="order",
        persistent=False,
    )
    producer.send(b'{"a": 1}', message_id="mine")
    consumer = session.consumer(source)
    message = taken(consumer)
    assert message.text == "grüße"
    assert message.body == "grüße".encode()
    assert message.message_id == message_id
    assert message.priority == 7
    assert message.properties == {"side": "buy", "size": 3}
    assert (message.correlation_id, message.reply_to, message.type) == ("c", answers.name, "order")
    assert not message.persistent
    assert message.timestamp is not None
    assert message.routing_key == "q"
    assert message.destination == source
    assert message.amqp.expiration == "60000"
    second = taken(consumer)
    assert second.persistent
    assert second.json() == {"a": 1}
    assert second.message_id == "mine"
    assert second.priority == 4


@pytest.mark.faces("sync")
def test_an_answer_comes_to_a_temporary_queue(connection: jms.Connection) -> None:
    asking, serving = connection.session(), connection.session()
    service = serving.queue("service")
    serving.consumer(service).listener = lambda message: serving.producer().send(
        message.text[::-1], destination=jms.Queue(message.reply_to or "")
    )
    answers = asking.temporary_queue()
    asking.producer(service).send("abc", reply_to=answers)
    assert taken(asking.consumer(answers)).text == "cba"


def test_a_delayed_message_comes_later(connection: jms.Connection) -> None:
    session = connection.session()
    producer = session.producer(session.queue("q"))
    producer.send("never", delivery_delay=3600)
    producer.send("soon")
    consumer = session.consumer(session.queue("q"))
    assert taken(consumer).text == "soon"
    assert consumer.receive(timeout=0) is None
    began = time.monotonic()
    producer.send("late", delivery_delay=0.1)
    assert taken(consumer).text == "late"
    assert time.monotonic() - began >= 0.1


def test_producers_refuse_what_makes_no_sense(connection: jms.Connection) -> None:
    session = connection.session()
    queue = session.queue("q")
    with pytest.raises(jms.IllegalState, match="has no destination"):
        session.producer().send("a")
    with pytest.raises(jms.IllegalState, match="has a destination"):
        session.producer(queue).send("a", destination=queue)
    with pytest.raises(ValueError, match="priority must be 0 to 9"):
        session.producer(queue).send("a", priority=10)
    with pytest.raises(ValueError, match="expires must be"):
        session.producer(queue).send("a", time_to_live=-1)
    with pytest.raises(TypeError, match="a destination is a Queue or a Topic"):
        session.producer("q")  # type: ignore[arg-type]
    with session.producer(queue) as producer:
        pass
    with pytest.raises(jms.IllegalState, match="The producer is closed"):
        producer.send("a")


def test_a_send_to_a_queue_that_refuses_raises_and_the_session_goes_on(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    with store.channel() as channel:
        limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
        channel.queue_declare("full", durable=True, arguments=limits)
    session = connection.session()
    producer = session.producer(session.queue("full"))
    producer.send("a")
    with pytest.raises(pyqstore.PublishRefused):
        producer.send("b")
    assert taken(session.consumer(session.queue("full"))).text == "a"
    producer.send("c")


def test_browsing_shows_what_is_not_acknowledged_and_delivers_nothing(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    session = connection.session("client")
    queue = session.queue("q?consumer.prefetchSize=2")
    producer = session.producer(queue)
    for body in "abcde":
        producer.send(body)
    assert taken(session.consumer(queue)).text == "a"
    found = list(session.browse(queue))
    assert [message.text for message in found] == list("abcde")  # b and c were pushed
    found[0].acknowledge()
    wait_until(lambda: store.queue_status("q").messages_ready == 2)
    with pytest.raises(pyqstore.NotFound):
        list(session.browse(session.queue("none")))
    with pytest.raises(TypeError, match="browse a Queue"):
        list(session.browse(session.topic("t")))  # type: ignore[arg-type]


def test_a_producer_whose_queue_was_deleted_does_not_send_into_nothing(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    session = connection.session()
    producer = session.producer(session.queue("q"))
    producer.send("before")
    with store.channel() as channel:
        channel.queue_delete("q")
    producer.send("after")
    assert taken(session.consumer(session.queue("q"))).text == "after"


def test_a_refusal_is_told_to_the_send_that_was_refused(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    with store.channel() as channel:
        full = {"x-max-length": 1, "x-overflow": "reject-publish"}
        channel.queue_declare("full", durable=True, arguments=full)
    session = connection.session()
    producer = session.producer(session.queue("full"))
    producer.send("one")
    with pytest.raises(pyqstore.PublishRefused):
        producer.send("two", persistent=False)
    session.producer(session.queue("free")).send("three")
    assert store.queue_status("free").messages_ready == 1


def test_a_receive_that_waits_says_so_when_its_queue_is_deleted(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    session = connection.session()
    consumer = session.consumer(session.queue("q"))

    def delete() -> None:
        wait_until(lambda: store.queue_status("q").consumers == 1)
        with store.channel() as channel:
            channel.queue_delete("q")

    thread = threading.Thread(target=delete)
    thread.start()
    with pytest.raises(jms.IllegalState, match="the queue of q was deleted"):
        consumer.receive(60)
    thread.join()


def test_a_consumer_of_a_queue_that_is_deleted_says_so(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    session = connection.session()
    consumer = session.consumer(session.queue("q"))
    assert consumer.receive(timeout=0) is None
    with store.channel() as channel:
        channel.queue_delete("q")
    with pytest.raises(jms.IllegalState, match="the queue of q was deleted"):
        consumer.receive(timeout=0)


def test_queues_take_no_selectors_and_streams_are_no_queues(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    session = connection.session()
    with pytest.raises(ValueError, match="there are no selectors on queues"):
        session.consumer(session.queue("q"), selector="a = 1")
    with pytest.raises(ValueError, match="there are no selectors on queues"):
        session.consumer(session.queue("q?consumer.selector=a%3D1"))
    store.stream("log")
    with pytest.raises(ValueError, match="'log' is a stream"):
        session.consumer(session.queue("log"))
    with pytest.raises(TypeError, match="consume from a Queue or a Topic"):
        session.consumer("q")  # type: ignore[arg-type]


def test_a_session_that_pulled_keeps_nothing_from_others(connection: jms.Connection) -> None:
    waited, other = connection.session(), connection.session()
    queue = waited.queue("q")
    idle = waited.consumer(queue, prefetch=0)
    assert idle.receive(timeout=0.05) is None  # and does not wait any more
    consumer = other.consumer(queue)
    other.producer(queue).send("a")
    assert taken(consumer).text == "a"


def test_several_sessions_share_a_queue(connection: jms.Connection) -> None:
    queue = jms.Queue("q")
    counts = [0, 0, 0]
    sessions = [connection.session() for _ in counts]

    def count(index: int) -> None:
        counts[index] += 1

    for index, session in enumerate(sessions):
        consumer = session.consumer(queue, prefetch=1)
        consumer.listener = lambda message, index=index: count(index)
    with connection.session() as other:
        producer = other.producer(queue)
        for number in range(300):
            producer.send(str(number), persistent=False)
    wait_until(lambda: sum(counts) == 300)

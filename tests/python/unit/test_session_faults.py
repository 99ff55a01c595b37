"""Sessions when something goes wrong beside them, or at the same time: channels that an error
closes, queues that are deleted, dead letters that are refused, closes that race."""

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore import Properties
from pyqstore import session as jms

from ..support import wait_until

QUICK = jms.RedeliveryPolicy(initial_redelivery_delay=0.01, redelivery_delay=0.01)
_UNKNOWN_TAG = 10**6
_EXPIRED_MS = 1


@pytest.fixture
def connection(store: pyqstore.Store) -> Iterator[jms.Connection]:
    with jms.connect(store, redelivery=QUICK) as connection:
        yield connection


def text_of(consumer: jms.Consumer, timeout: float = 20) -> str | None:
    message = consumer.receive(timeout)
    return None if message is None else message.text


def close_channel(session: jms.Session) -> None:
    """By an error, as an application's would."""
    with session._link.lock, pytest.raises(pyqstore.PreconditionFailed):
        session._link.channel.basic_ack(_UNKNOWN_TAG)


def delete(store: pyqstore.Store, queue: str) -> None:
    with store.channel() as channel:
        channel.queue_delete(queue)


def fill(store: pyqstore.Store, queue: str) -> None:
    """A queue that refuses everything from now on."""
    with store.channel() as channel:
        full = {"x-max-length": 1, "x-overflow": "reject-publish"}
        channel.queue_declare(queue, durable=True, arguments=full)
        channel.basic_publish("", queue, b"earlier", Properties(delivery_mode=2))


def send_expired(store: pyqstore.Store, queue: str, body: str) -> None:
    """A message that is over by its producer's clock, and not yet by the engine's."""
    headers = {"JMSExpiration": _EXPIRED_MS}
    over = Properties(headers=headers, delivery_mode=2, expiration=600_000)
    store.queue(queue)
    with store.channel() as channel:
        channel.basic_publish("", queue, body, over)


def together(*calls: Callable[[], object]) -> None:
    """Each in a thread of its own; what one of them raises is raised here."""
    raised: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def test_a_failed_commit_says_so_when_a_consumer_cannot_be_registered_again(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    session = connection.session("transacted")
    consumers = {name: session.consumer(session.queue(name)) for name in ("one", "gone", "two")}
    for name in consumers:
        store.queue(name).put(name.encode())
    assert text_of(consumers["one"]) == "one"
    delete(store, "gone")
    close_channel(session)
    with pytest.raises(jms.TransactionRolledBack):
        session.commit()
    with pytest.raises(jms.IllegalState, match="the queue of gone was deleted"):
        consumers["gone"].receive(timeout=0)
    for name in ("one", "two"):
        assert text_of(consumers[name]) == name
    session.commit()
    assert store.queue_status("one").messages_ready == 0


def test_a_consumer_whose_queue_another_took_meanwhile_says_why_it_gets_nothing(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    session = connection.session("transacted")
    consumer = session.consumer(session.queue("q"))
    close_channel(session)
    with connection.session() as other, other.consumer(other.queue("q?consumer.exclusive=true")):
        with pytest.raises(jms.TransactionRolledBack):
            session.commit()
        with pytest.raises(jms.IllegalState, match=r"q is not consumed any more: .*exclusive"):
            consumer.receive(timeout=0)


def test_the_descriptors_of_a_session_stay_its_own_while_somebody_may_wait_at_them(
    connection: jms.Connection,
) -> None:
    session = connection.session("transacted")
    link = session._link
    before = link.descriptors
    close_channel(session)
    with pytest.raises(jms.TransactionRolledBack):
        session.commit()
    session.close()
    assert link.descriptors == before
    for descriptor in before:
        os.fstat(descriptor)
    del session, link
    gc.collect()
    for descriptor in before:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_what_comes_for_nobody_is_not_told_as_redelivered(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    store.queue("q").put(b"a")
    session = connection.session()
    session.consumer(session.queue("other"))
    with session._link.lock:
        tag = session._link.channel._consume("q", "", 0, b"")  # as when an interrupt comes then
        session._link.fill(arm=False)
        session._link.channel._cancel(tag)
    message = session.consumer(session.queue("q")).receive(20)
    assert message is not None
    assert not message.redelivered
    assert message.delivery_count == 1


def test_a_listener_is_not_called_again_once_its_consumer_is_about_to_be_closed(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    session = connection.session()
    for body in (b"a", b"b", b"c"):
        store.queue("q").put(body)
    seen: list[str] = []
    began, may_end = threading.Event(), threading.Event()

    def listen(message: jms.Message) -> None:
        seen.append(message.text)
        began.set()
        may_end.wait(20)

    consumer = session.consumer(session.queue("q"))
    consumer.listener = listen
    assert began.wait(20)
    closing = threading.Thread(target=consumer.close)
    closing.start()
    wait_until(lambda: consumer._is_closing)
    may_end.set()
    closing.join(20)
    assert not closing.is_alive()
    assert seen == ["a"]
    assert store.queue_status("q").messages_ready == 2


@pytest.mark.parametrize("style", ["receive", "listener"])
def test_full_dead_letters_keep_nobody_from_the_messages_behind(
    store: pyqstore.Store, connection: jms.Connection, style: str
) -> None:
    fill(store, "ActiveMQ.DLQ")
    queue = store.queue("q")
    queue.put(b"first")
    send_expired(store, "q", "over")
    queue.put(b"last")
    session = connection.session()
    consumer = session.consumer(session.queue("q"))
    seen: list[str | None] = []
    if style == "listener":
        consumer.listener = lambda message: seen.append(message.text)
        wait_until(lambda: len(seen) == 2)
    else:
        seen = [text_of(consumer) for _ in range(2)]
    assert seen == ["first", "last"]
    dead = store.queue("ActiveMQ.DLQ")
    dead.purge()

    def is_dead() -> bool:
        if style == "receive":
            assert consumer.receive(timeout=0) is None
        return len(dead) == 1

    wait_until(is_dead)
    assert len(queue) == 0


def test_a_message_for_the_dead_letters_has_no_part_in_an_open_transaction(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    session = connection.session("transacted")
    producer = session.producer(session.queue("out"))
    send_expired(store, "q", "over")
    store.queue("q").put(b"a")
    consumer = session.consumer(session.queue("q"))
    producer.send("dropped")
    assert text_of(consumer) == "a"
    session.rollback()
    assert text_of(consumer) == "a"
    assert len(store.queue("ActiveMQ.DLQ")) == 1
    assert store.queue_status("out").messages_ready == 0
    producer.send("kept")
    session.commit()
    assert store.queue_status("out").messages_ready == 1
    assert store.queue_status("q").messages_unacked == 0


def test_what_waits_for_the_end_of_a_transaction_goes_back_with_its_consumer(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    session = connection.session("transacted")
    send_expired(store, "q", "over")
    consumer = session.consumer(session.queue("q"))
    session.producer(session.queue("out")).send("x")
    assert consumer.receive(timeout=0) is None
    assert store.queue_status("q").messages_unacked == 1
    consumer.close()
    assert store.queue_status("q").messages_ready == 1


def test_messages_whose_listener_raises_do_not_fill_the_window_of_dups_ok(
    connection: jms.Connection,
) -> None:
    session = connection.session("dups_ok")
    seen: list[str] = []

    def listen(message: jms.Message) -> None:
        seen.append(message.text)
        raise ValueError("each time")

    session.consumer(session.topic("t"), prefetch=4).listener = listen
    with connection.session() as other:
        producer = other.producer(other.topic("t"))
        for number in range(20):
            producer.send(str(number), persistent=False)
    wait_until(lambda: len(seen) == 20)


def test_a_session_that_fails_to_close_keeps_no_other_from_it(
    store: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError("not now")

    connection = jms.connect(store, client_id="billing")
    sessions = [connection.session() for _ in range(3)]
    consumers = [session.subscribe(session.topic("t")) for session in sessions]
    for session in sessions[:2]:
        monkeypatch.setattr(session._link.channel, "close", fail, raising=False)
    with pytest.raises(OSError, match="not now"):
        connection.close()
    monkeypatch.undo()
    assert connection.closed
    assert all(session.closed for session in sessions)
    assert all(consumer.closed for consumer in consumers)
    jms.connect(store, client_id="billing").close()


@pytest.mark.parametrize("owner", ["consumer", "session"])
def test_a_shared_subscription_is_there_when_its_last_consumer_closes_meanwhile(
    connection: jms.Connection, monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    session, other = connection.session(), connection.session()
    topic = session.topic("t")
    last = session.subscribe(topic, "work", shared=True)
    closing = threading.Thread(target=(last if owner == "consumer" else session).close)
    plan = other._plan

    def close_and_plan(*given: Any, **named: Any) -> Any:
        closing.start()
        closing.join(0.5)  # as long as it must not close yet
        return plan(*given, **named)

    monkeypatch.setattr(other, "_plan", close_and_plan)
    consumer = other.subscribe(topic, "work", shared=True)
    closing.join(20)
    assert last.closed
    other.producer(topic).send("a")
    assert text_of(consumer) == "a"


def test_a_store_opened_by_uri_is_opened_again_while_another_connection_closes_it(
    path: Path,
) -> None:
    def come_and_go() -> None:
        for _ in range(30):
            jms.connect(f"qstore://{path}").close()

    together(come_and_go, come_and_go)


@pytest.mark.parametrize("mode", ["client", "individual", "transacted", "dups_ok"])
def test_optimized_acknowledgement_is_refused_without_prefetch_only_where_it_counts(
    store: pyqstore.Store, mode: str
) -> None:
    uri = f"qstore://{store.path}?optimizeAcknowledge=true&prefetch=0"
    store.close()
    with jms.connect(uri) as connection, connection.session(mode) as session:
        topic = session.topic("t")
        consumer = session.consumer(topic)
        session.producer(topic).send("a")
        if session.transacted:
            session.commit()
        assert text_of(consumer) == "a"
        auto = connection.session()
        for place in (auto.queue("q"), topic):
            with pytest.raises(ValueError, match="optimize_acknowledge needs a prefetch"):
                auto.consumer(place)
            auto.consumer(place, optimize_acknowledge=False)


def test_a_close_that_fails_to_wait_for_the_listener_leaves_the_consumer_open(
    store: pyqstore.Store, connection: jms.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(consumer: jms.Consumer) -> None:
        raise KeyboardInterrupt

    session = connection.session()
    consumer = session.consumer(session.queue("q"))
    seen: list[str] = []
    consumer.listener = lambda message: seen.append(message.text)
    with monkeypatch.context() as patch:
        patch.setattr(session._peers, "await_listener", interrupted)
        with suppress(KeyboardInterrupt):
            consumer.close()
    assert not consumer.closed
    store.queue("q").put(b"a")
    wait_until(lambda: seen == ["a"])


def test_topics_lead_to_selectors_only_while_a_subscription_selects(store: pyqstore.Store) -> None:
    def selected() -> list[str]:
        return sorted(each.routing_key for each in store.bindings() if each.to_exchange)

    with jms.connect(store, client_id="billing") as connection:
        session = connection.session()
        one, other = session.topic("one"), session.topic("other.>")
        short = session.subscribe(one, selector="a = 1")
        second = session.subscribe(one, selector="a = 2")
        shared = session.subscribe(other, "work", shared=True, selector="a = 1")
        session.subscribe(other, "log", durable=True, selector="a = 1").close()
        assert selected() == ["one", "other.#"]
        short.close()
        assert selected() == ["one", "other.#"]
        second.close()
        assert selected() == ["other.#"]
        session.unsubscribe("log")
        assert selected() == ["other.#"]
        shared.close()
        assert selected() == []
        session.subscribe(one, selector="a = 1")
        session.subscribe(other, "work", shared=True, selector="a = 1")
    assert selected() == []
    with store.channel() as channel:  # what a crash leaves
        channel.exchange_bind("jms.durable.selectors", "jms.durable.topic", "left")
    with jms.connect(store) as connection, connection.session() as session:
        session.subscribe(one, selector="a = 1")
        assert selected() == ["one"]


def test_what_was_delivered_before_an_error_closed_the_channel_is_not_acknowledged_as_another(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    for body in (b"one", b"two"):
        for queue in ("closed", "deleted", "other"):
            store.queue(queue).put(body)
    session = connection.session("client")
    for name in ("closed", "deleted"):
        consumer = session.consumer(session.queue(name))
        assert [text_of(consumer) for _ in range(2)] == ["one", "two"]
        if name == "closed":
            consumer.close()
        else:
            delete(store, name)
            assert session.consumer(session.queue("none")).receive(timeout=0) is None
    producer = session.producer(session.groups("g", 1))
    with store.channel() as channel:
        channel.exchange_delete("g")
    with pytest.raises(pyqstore.NotFound):
        producer.send("x")
    consumer = session.consumer(session.queue("other"))
    first = consumer.receive(20)
    assert first is not None
    assert len(consumer.buffer) == 1
    first.acknowledge()
    session.close()
    assert store.queue_status("other").messages_ready == 1
    assert store.queue_status("closed").messages_ready == 2

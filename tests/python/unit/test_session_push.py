"""A session's messages are in its consumers' buffers before anybody asks for them, in each mode,
with threads and with asyncio, and the buffers are topped up as messages are acknowledged."""

import asyncio
import gc
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore import aio
from pyqstore import session as jms

from ..support import wait_until
from .either import Loop, Synchronous, threads

MODES = ("auto", "client", "dups_ok", "individual", "transacted")
BY_HAND = ("client", "individual", "transacted")
FACES = ("threads", "asyncio")
PREFETCH, WINDOW, SENT = 10, 15, 100
PATIENCE_S = 20.0
QUIET_S = 0.3
AT_ONCE = jms.RedeliveryPolicy(initial_redelivery_delay=0, redelivery_delay=0)
_UNKNOWN_TAG = 10**6

Threads = Callable[[], list[threading.Thread]]


@pytest.fixture
def store() -> Iterator[pyqstore.Store]:
    with pyqstore.open(":memory:") as store:
        yield store


@pytest.fixture(params=FACES)
def connection(request: pytest.FixtureRequest, store: pyqstore.Store) -> Iterator[Any]:
    """By either face."""
    if request.param == "threads":
        with jms.connect(store, redelivery=AT_ONCE) as connection:
            yield connection
        return
    with closing(Loop()) as loop:
        connecting = aio.session.connect(aio.Store(store), redelivery=AT_ONCE)
        connection = Synchronous(loop, loop.run(lambda: connecting))
        yield connection
        connection.close()


@pytest.fixture
def pushing() -> Threads:
    """The threads that push and were not there before."""
    before = set(threading.enumerate())
    return lambda: [
        each
        for each in threading.enumerate()
        if each not in before and each.name.startswith("pyqstore-push")
    ]


def send(store: pyqstore.Store, queue: str, count: int = SENT) -> None:
    store.queue(queue).put_many([b"%d" % number for number in range(count)])


def await_buffer(consumer: Any, count: int) -> None:
    wait_until(lambda: len(consumer.buffer) == count)
    assert consumer.buffer.most == count


def taken(consumer: Any, count: int) -> list[Any]:
    found = [consumer.receive(timeout=PATIENCE_S) for _ in range(count)]
    assert None not in found
    return found


def acknowledge(session: Any, messages: list[Any]) -> None:
    if session.mode == "transacted":
        session.commit()
    for message in messages:
        message.acknowledge()


def counts(store: pyqstore.Store, queue: str) -> tuple[int, int]:
    status = store.queue_status(queue)
    return status.messages_ready, status.messages_unacked


@pytest.mark.parametrize("sent", ["before", "after"])
@pytest.mark.parametrize("mode", MODES)
def test_messages_are_in_the_buffer_before_anybody_asks(
    store: pyqstore.Store, connection: Any, mode: str, sent: str
) -> None:
    session = connection.session(mode)
    queue = session.queue("q")
    if sent == "before":
        send(store, "q")
        consumer = session.consumer(queue, prefetch=PREFETCH)
        assert len(consumer.buffer) == PREFETCH
    else:
        consumer = session.consumer(queue, prefetch=PREFETCH)
        send(store, "q")
    await_buffer(consumer, PREFETCH)
    assert counts(store, "q") == (SENT - PREFETCH, PREFETCH)
    bodies = [message.body for message in taken(consumer, 3)]
    assert bodies == [b"0", b"1", b"2"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("topic", [False, True])
def test_messages_of_a_topic_are_in_the_buffers_of_its_subscriptions(
    connection: Any, mode: str, topic: bool
) -> None:
    session, other = connection.session(mode), connection.session()
    place = session.topic("t") if topic else session.queue("t")
    consumer = session.consumer(place, prefetch=PREFETCH)
    producer = other.producer(place)
    for number in range(PREFETCH):
        producer.send(str(number), persistent=False)
    await_buffer(consumer, PREFETCH)


@pytest.mark.parametrize("count", [1, 3, PREFETCH])
@pytest.mark.parametrize("mode", MODES)
def test_the_buffer_is_topped_up_as_messages_are_acknowledged(
    store: pyqstore.Store, connection: Any, mode: str, count: int
) -> None:
    send(store, "q")
    session = connection.session(mode)
    consumer = session.consumer(session.queue("q"), prefetch=PREFETCH)
    for turn in range(1, 4):
        acknowledge(session, taken(consumer, count))
        await_buffer(consumer, PREFETCH)
        assert counts(store, "q") == (SENT - PREFETCH - turn * count, PREFETCH)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("apart", [False, True])
def test_each_consumer_has_its_window_pushed(
    store: pyqstore.Store, connection: Any, mode: str, apart: bool
) -> None:
    first = connection.session(mode)
    second = connection.session(mode) if apart else first
    consumers = [
        session.consumer(session.queue("q"), prefetch=PREFETCH) for session in (first, second)
    ]
    send(store, "q")
    for consumer in consumers:
        await_buffer(consumer, PREFETCH)
    assert counts(store, "q") == (SENT - 2 * PREFETCH, 2 * PREFETCH)


@pytest.mark.parametrize("owner", ["consumer", "session", "connection"])
@pytest.mark.parametrize("mode", MODES)
def test_what_was_pushed_and_never_asked_for_goes_back_as_if_it_had_not_been(
    store: pyqstore.Store, connection: Any, mode: str, owner: str
) -> None:
    send(store, "q")
    session = connection.session(mode)
    consumer = session.consumer(session.queue("q"), prefetch=PREFETCH)
    await_buffer(consumer, PREFETCH)
    {"consumer": consumer, "session": session, "connection": connection}[owner].close()
    assert counts(store, "q") == (SENT, 0)
    queue = store.queue("q")
    for number in range(PREFETCH + 1):
        with queue.get(0) as message:
            assert (message.body, message.redelivered) == (b"%d" % number, False)
            assert message.delivery_count == 0


@pytest.mark.parametrize("mode", BY_HAND)
def test_more_is_pushed_when_half_of_the_window_is_delivered_and_not_beyond_one_and_a_half(
    store: pyqstore.Store, connection: Any, mode: str
) -> None:
    send(store, "q")
    session = connection.session(mode)
    consumer = session.consumer(session.queue("q"), prefetch=PREFETCH)
    messages = taken(consumer, PREFETCH // 2 - 1)
    assert counts(store, "q") == (SENT - PREFETCH, PREFETCH)
    messages += taken(consumer, 1)
    wait_until(lambda: counts(store, "q") == (SENT - WINDOW, WINDOW))
    messages += taken(consumer, PREFETCH)
    assert consumer.receive(timeout=0) is None
    acknowledge(session, messages)
    await_buffer(consumer, PREFETCH)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_pushed_to_a_consumer_that_pulls(
    store: pyqstore.Store, connection: Any, mode: str, pushing: Threads
) -> None:
    send(store, "q")
    session = connection.session(mode)
    consumer = session.consumer(session.queue("q"), prefetch=0)
    assert pushing() == []
    acknowledge(session, taken(consumer, 1))
    assert len(consumer.buffer) == 0
    assert counts(store, "q") == (SENT - 1, 0)


@pytest.mark.parametrize("mode", MODES)
def test_the_buffer_behind_a_listener_is_filled_while_that_runs(
    store: pyqstore.Store, connection: Any, mode: str
) -> None:
    session = connection.session(mode)
    consumer = session.consumer(session.queue("q"), prefetch=PREFETCH)
    seen: list[Any] = []
    may_go_on = threading.Semaphore(0)
    is_async = isinstance(connection, Synchronous)

    async def listen_in_loop(message: Any) -> None:
        seen.append(message)
        while not may_go_on.acquire(blocking=False):
            await asyncio.sleep(0.001)
        if mode in ("client", "individual"):
            await message.acknowledge()

    def listen(message: Any) -> None:
        seen.append(message)
        may_go_on.acquire(timeout=PATIENCE_S)
        if mode == "transacted":
            session.commit()
        message.acknowledge()

    consumer.listener = listen_in_loop if is_async else listen
    store.queue("q").put(b"first")
    wait_until(lambda: len(seen) == 1)
    send(store, "q")
    turns = 1 if is_async and mode == "transacted" else 4
    for turn in range(turns):
        wait_until(lambda turn=turn: len(seen) == turn + 1)  # type: ignore[misc]
        wait_until(lambda: len(consumer.buffer) == PREFETCH - 1)
        wait_until(lambda: counts(store, "q")[1] == PREFETCH)
        may_go_on.release()
    for _ in range(SENT):
        may_go_on.release()
    consumer.listener = None


@pytest.mark.parametrize("mode", ["client", "individual"])
def test_the_buffer_behind_a_listener_is_topped_up_when_others_acknowledge(
    store: pyqstore.Store, connection: Any, mode: str
) -> None:
    send(store, "q")
    session = connection.session(mode)
    consumer = session.consumer(session.queue("q"), prefetch=PREFETCH)
    other = session.consumer(session.queue("other"), prefetch=PREFETCH)
    seen: list[Any] = []
    other.listener = print  # it has room, and waits
    consumer.listener = seen.append
    for turn in range(1, 4):
        wait_until(lambda turn=turn: len(seen) == turn * WINDOW)  # type: ignore[misc]
        for message in seen[-WINDOW:] if mode == "individual" else seen[-1:]:
            settled = message.acknowledge()
            if inspect.isawaitable(settled):
                connection._loop.run(lambda settled=settled: settled)


def test_others_have_their_buffers_filled_while_one_receives(
    store: pyqstore.Store, connection: Any
) -> None:
    session = connection.session()
    consumers = [
        session.consumer(session.queue(name), prefetch=PREFETCH) for name in ("one", "two")
    ]
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(consumers[0].receive(timeout=PATIENCE_S)))
    thread.start()
    send(store, "two")
    await_buffer(consumers[1], PREFETCH)
    store.queue("one").put(b"here")
    thread.join(PATIENCE_S)
    assert [message.body for message in got] == [b"here"]
    send(store, "one")
    await_buffer(consumers[0], PREFETCH)


def test_a_queue_that_is_deleted_is_told_of_behind_what_was_pushed(
    store: pyqstore.Store, connection: Any
) -> None:
    session = connection.session()
    consumer = session.consumer(session.queue("q"), prefetch=PREFETCH)
    send(store, "q", 2)
    await_buffer(consumer, 2)
    with store.channel() as channel:
        channel.queue_delete("q")
    assert [message.body for message in taken(consumer, 2)] == [b"0", b"1"]
    with pytest.raises(jms.IllegalState, match="the queue of q was deleted"):
        consumer.receive(timeout=0)


@pytest.mark.parametrize("mode", MODES)
def test_buffers_are_filled_again_when_an_error_has_closed_the_channel(
    store: pyqstore.Store, mode: str
) -> None:
    send(store, "q")
    with jms.connect(store, redelivery=AT_ONCE) as connection:
        session = connection.session(mode)
        consumer = session.consumer(session.queue("q"), prefetch=PREFETCH)
        with session._link.lock, pytest.raises(pyqstore.PreconditionFailed):
            session._link.channel.basic_ack(_UNKNOWN_TAG)
        session.producer(session.queue("other")).send("goes on")
        wait_until(lambda: counts(store, "q") == (SENT - PREFETCH, PREFETCH))
        assert len(consumer.buffer) == PREFETCH
        send(store, "q", 1)
        acknowledge(session, taken(consumer, 3))
        await_buffer(consumer, PREFETCH)


def test_what_nobody_asked_for_and_fails_is_told_to_whoever_asks(
    store: pyqstore.Store, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = connection.session()
    consumer = session.consumer(session.queue("q"), prefetch=PREFETCH)
    link = threads(session)._link
    push, raised = link._push, threading.Event()

    def fail_once(kinds: int) -> bool:
        monkeypatch.setattr(link, "_push", push)
        raised.set()
        raise pyqstore.StoreFailed("not now")

    monkeypatch.setattr(link, "_push", fail_once)
    send(store, "q", 1)
    assert raised.wait(PATIENCE_S)
    with pytest.raises(pyqstore.StoreFailed, match="not now"):
        consumer.receive(timeout=PATIENCE_S)
    await_buffer(consumer, 1)
    assert len(taken(consumer, 1)) == 1


def test_a_consumer_that_could_not_be_made_keeps_nothing(
    store: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(store, "q")
    with jms.connect(store) as connection, connection.session() as session:
        push = session._link._push

        def fail(kinds: int) -> bool:
            push(kinds)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(session._link, "_push", fail)
            with pytest.raises(KeyboardInterrupt):
                session.consumer(session.queue("q"), prefetch=PREFETCH)
        assert counts(store, "q") == (SENT, 0)
        assert store.queue_status("q").consumers == 0
        consumer = session.consumer(session.queue("q"), prefetch=PREFETCH)
        assert not taken(consumer, 1)[0].redelivered


def test_a_session_has_one_thread_that_pushes_and_ends_with_it(
    connection: Any, pushing: Threads
) -> None:
    session = connection.session()
    assert pushing() == []
    for name in "abc":
        session.consumer(session.queue(name))
    assert len(pushing()) == 1
    assert all(each.daemon for each in pushing())
    session.close()
    wait_until(lambda: pushing() == [])


def test_a_session_that_is_forgotten_gives_back_what_was_pushed(
    store: pyqstore.Store, pushing: Threads
) -> None:
    send(store, "q")
    connection = jms.connect(store)
    session = connection.session()
    consumer = session.consumer(session.queue("q"), prefetch=PREFETCH)
    assert counts(store, "q") == (SENT - PREFETCH, PREFETCH)
    del connection, session, consumer

    def is_back() -> bool:
        gc.collect()  # the thread may have it in hand
        return counts(store, "q") == (SENT, 0)

    wait_until(is_back)
    wait_until(lambda: pushing() == [])


@pytest.mark.clock
@pytest.mark.parametrize("sent", [0, SENT])
def test_a_session_that_is_idle_sleeps(
    store: pyqstore.Store, connection: Any, pushing: Threads, sent: int
) -> None:
    if sent:
        send(store, "q", sent)
    session = connection.session("client")
    session.consumer(session.queue("q"), prefetch=PREFETCH)
    session.consumer(session.queue("empty"), prefetch=PREFETCH)
    (thread,) = pushing()
    status = Path(f"/proc/self/task/{thread.native_id}/status")

    def switches() -> list[str]:
        return [line for line in status.read_text().splitlines() if "ctxt_switches" in line]

    before = switches()

    def is_quiet() -> bool:
        nonlocal before
        was, before = before, switches()
        threading.Event().wait(QUIET_S)
        return was == before == switches()

    wait_until(is_quiet)

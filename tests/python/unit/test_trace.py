"""``store.trace()``: each step of messages, in both faces."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow
import pytest

import pyqstore
from pyqstore import aio

from ..support import get

PERSISTENT = pyqstore.Properties(delivery_mode=2)
ARRIVES = ["publish", "route", "enqueue", "record", "sync", "confirm"]


def read(trace: pyqstore.Trace) -> list[pyqstore.TraceEvent]:
    """What is there."""
    return list(iter(lambda: trace.next(0), None))


def steps(trace: pyqstore.Trace) -> list[str]:
    return [event.step for event in read(trace)]


@pytest.fixture
def channel(store: pyqstore.Store) -> pyqstore.Channel:
    channel = store.channel()
    channel.queue_declare("a", durable=True)
    channel.queue_declare("b", durable=True)
    for queue in "ab":
        channel.queue_bind(queue, "amq.fanout")
    channel.confirm_select()
    return channel


def test_a_message_is_followed_from_its_publisher_to_its_acknowledgement(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    begin = datetime.now(UTC) - timedelta(seconds=1)
    with store.trace() as trace:
        channel.basic_publish("amq.fanout", "k", b"1", PERSISTENT)
        channel.wait_for_confirms()
        message = get(channel, "a")
        message.ack()
        found = read(trace)
    assert [event.step for event in found] == [*ARRIVES, "deliver", "ack"]
    assert [event.queues for event in found] == [[], *[["a", "b"]] * 5, ["a"], ["a"]]
    assert {event.exchange for event in found[:-1]} == {"amq.fanout"}
    assert {event.routing_key for event in found[:-1]} == {"k"}
    lsns = [event.lsn for event in found]
    assert lsns[:3] == [0, 0, 0]
    assert len(set(lsns[3:6])) == 1
    assert lsns[3] > 0
    assert [event.number for event in found] == [1] * 6 + [message.delivery_tag] * 2
    assert {(event.count, event.channel) for event in found} == {(1, channel.number)}
    times = [event.time for event in found]
    assert times == sorted(times)
    assert begin < times[0]
    assert times[-1] < datetime.now(UTC) + timedelta(seconds=1)


def test_what_leads_nowhere_is_returned_and_a_rejection_is_a_nack(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.add_return_listener(lambda message: None)
    with store.trace() as trace:
        channel.basic_publish("", "nowhere", b"", mandatory=True)
        channel.wait_for_confirms()
        assert steps(trace) == ["publish", "route", "return", "confirm"]
        channel.basic_publish("", "a", b"")
        message = get(channel, "a")
        message.nack(requeue=False)
        assert [event.step for event in read(trace) if event.number == message.delivery_tag][
            -2:
        ] == ["deliver", "nack"]


def refused(store: pyqstore.Store, channel: pyqstore.Channel) -> None:
    channel.queue_declare(
        "full", durable=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"}
    )
    channel.basic_publish("", "full", b"", PERSISTENT)
    assert not channel.wait_for_confirms()


def batch(store: pyqstore.Store, channel: pyqstore.Channel) -> None:
    rows = pyarrow.record_batch({"body": [b"1", b"2", b"3"]})
    channel.publish_batch(rows, "", "a").wait()
    channel.process_events()


def commit(store: pyqstore.Store, channel: pyqstore.Channel) -> None:
    with channel.transaction() as transaction:
        transaction.publish("", "a", b"1", PERSISTENT)
        transaction.publish("", "a", b"2", PERSISTENT)


def put(store: pyqstore.Store, channel: pyqstore.Channel) -> None:
    store.queue("a").put(b"1")


@pytest.mark.parametrize(
    ("publish", "expected"),
    [
        (refused, {("publish", 1), ("route", 1), ("nack", 1)}),
        (batch, {(step, 3) for step in ARRIVES}),
        (commit, {("publish", 1), ("route", 1), ("enqueue", 2), ("record", 2), ("sync", 2)}),
        (put, {(step, 1) for step in ARRIVES}),
    ],
    ids=["refused", "batch", "commit", "Queue.put"],
)
def test_every_way_to_publish_is_traced(
    store: pyqstore.Store,
    channel: pyqstore.Channel,
    publish: Callable[[pyqstore.Store, pyqstore.Channel], None],
    expected: set[tuple[str, int]],
) -> None:
    with store.trace() as trace:
        publish(store, channel)
        found = read(trace)
    assert {(event.step, event.count) for event in found} >= expected
    assert {event.step for event in found} == {step for step, _ in expected}


def test_a_trace_can_be_of_one_exchange_or_queue(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    of_exchange, of_queue = store.trace(exchange="amq.fanout"), store.trace(queue="a")
    of_nothing = store.trace(queue="nothing")
    channel.basic_publish("", "b", b"")
    channel.basic_publish("amq.fanout", "", b"")
    assert [event.queues for event in read(of_exchange)][1:3] == [["a", "b"]] * 2
    assert {event.exchange for event in read(of_queue)} == {"amq.fanout"}
    assert read(of_nothing) == []


@pytest.mark.parametrize("argument", ["exchange", "queue"])
def test_names_that_cannot_be_are_refused(store: pyqstore.Store, argument: str) -> None:
    with pytest.raises(ValueError, match=f"{argument} of 256 bytes: 255 at most"):
        store.trace(**{argument: "x" * 256})
    with pytest.raises(TypeError, match=argument):
        store.trace(**{argument: 5})  # type: ignore[arg-type]


def test_iterating_waits_for_steps_and_ends_with_the_store(path: Path) -> None:
    came: list[str] = []
    store = pyqstore.open(path)
    trace = store.trace()
    begun = threading.Event()

    def follow() -> None:
        for event in trace:
            came.append(event.step)
            if event.step == "record":
                begun.set()

    thread = threading.Thread(target=follow)
    thread.start()
    queue = store.queue("q")
    queue.put(b"1")
    assert begun.wait(60)
    store.close()
    thread.join(60)
    assert not thread.is_alive()
    assert came[:4] == ["publish", "route", "enqueue", "record"]
    assert trace.is_over
    trace.close()


def test_a_closed_trace_says_so(store: pyqstore.Store) -> None:
    trace = store.trace()
    trace.close()
    trace.close()
    assert trace.next() is None
    assert list(trace) == []
    with pytest.raises(ValueError, match="the trace is closed"):
        _ = trace.dropped
    store.close()
    with pytest.raises(pyqstore.StoreClosed):
        store.trace()


def test_steps_that_nobody_reads_are_dropped_and_counted(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    with store.trace(queue="a") as trace:
        while trace.dropped == 0:
            for _ in range(1000):
                channel.basic_publish("", "a", b"")
        assert trace.next(0) is not None


def test_each_of_many_traces_is_told_all(store: pyqstore.Store, channel: pyqstore.Channel) -> None:
    traces = [store.trace() for _ in range(5)]
    channel.basic_publish("", "a", b"")
    assert [steps(trace)[:3] for trace in traces] == [["publish", "route", "enqueue"]] * 5


async def test_asyncio_waits_beside_other_tasks(path: Path) -> None:
    found: list[str] = []
    async with aio.open(path) as store, store.trace(queue="q") as trace:
        queue = await store.queue("q")

        async def follow() -> None:
            async for event in trace:
                found.append(event.step)
                if event.step == "ack":
                    break

        task = asyncio.create_task(follow())
        await asyncio.sleep(0)
        await queue.put(b"1")
        message = await queue.get()
        await message.ack()
        await task
        assert trace.dropped == 0
    assert found == [*ARRIVES, "deliver", "ack"]


async def test_a_step_that_comes_to_a_cancelled_task_comes_again(aio_store: aio.Store) -> None:
    queue = await aio_store.queue("q")
    trace = aio_store.trace()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(trace), 0.001)
    await queue.put(b"1")
    found = [(await anext(trace)).step for _ in ARRIVES]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(trace), 0.001)
    await trace.close()
    with pytest.raises(StopAsyncIteration):
        await anext(trace)
    assert found == ARRIVES

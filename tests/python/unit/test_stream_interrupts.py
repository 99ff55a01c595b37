"""Streams' consumers and readers when a signal handler raises, or a task is cancelled, at any step:
nothing is lost, nothing comes twice, nothing is left behind."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
from pyqstore import aio
from pyqstore.stream_consumer import StreamConsumer

from ..interrupts import interrupted


def bodies(batch: pa.RecordBatch) -> list[bytes]:
    return list(batch["body"].to_pylist())


@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_a_signal_handler_that_raises_in_a_poll_loses_no_rows(
    store: pyqstore.Store, names: list[str]
) -> None:
    streams = [store.stream(name) for name in names]
    with store.stream_consumer(names, group="g") as consumer:
        consumer.poll()
        for step in itertools.count(1):
            stream = streams[step % len(streams)]
            stream.publish(b"%d" % step)
            before = consumer.position(stream.name)
            batch, is_interrupted = interrupted(step, lambda: consumer.poll(timeout=30))
            if batch is None:
                assert consumer.position(stream.name) == before
                batch = consumer.poll()
            assert bodies(batch) == [b"%d" % step]
            assert consumer.position(stream.name) == before + 1
            assert len(consumer.poll()) == 0
            if not is_interrupted:
                break
        assert step > 20
        consumer.commit()
        for stream in streams:
            assert consumer.committed(stream.name) == stream.next


def test_a_signal_handler_that_raises_when_the_engine_has_given_rows_loses_none(
    store: pyqstore.Store,
) -> None:
    """Between the engine's call and the next step of Python: then nobody has the rows."""
    stream = store.stream("a")

    class Engine:
        def __init__(self, core: Any) -> None:
            self.core = core

        def __getattr__(self, name: str) -> Any:
            return getattr(self.core, name)

        def next(self, *arguments: int) -> Any:
            self.core.next(*arguments)
            raise KeyboardInterrupt

    with store.stream_consumer("a", group="g") as consumer:
        consumer.poll()
        reader = consumer._readers["a"]
        for number in range(3):
            stream.publish(b"%d" % number)
            core = reader.core
            reader.core = Engine(core)  # type: ignore[assignment]
            with pytest.raises(KeyboardInterrupt):
                consumer.poll()
            reader.core = core
            consumer.commit()
            assert consumer.committed("a") == number
            assert bodies(consumer.poll()) == [b"%d" % number]
            consumer.commit()
            assert consumer.committed("a") == number + 1


def test_a_poll_for_fewer_rows_than_an_interrupted_one_had_found_gives_so_many(
    store: pyqstore.Store,
) -> None:
    store.stream("a").publish_batch(pa.table({"body": [b"%d" % n for n in range(10)]}))
    with store.stream_consumer("a", group="g") as consumer:
        for step in itertools.count(1):
            consumer.seek("a", 0)
            batch, is_interrupted = interrupted(step, consumer.poll)
            read = [] if batch is None else bodies(batch)
            while rows := bodies(consumer.poll(3)):
                assert len(rows) <= 3
                read += rows
            assert read == [b"%d" % n for n in range(10)]
            if not is_interrupted:
                break


def test_a_damaged_block_is_told_though_the_poll_that_found_it_was_interrupted(
    store: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.stream("a").publish(b"one")
    with store.stream_consumer("a", group="g") as consumer:
        consumer.poll()
        reader = consumer._readers["a"]
        store.stream("a").publish(b"two")

        class Damaged:
            def __init__(self, core: Any) -> None:
                self.core = core

            def __getattr__(self, name: str) -> Any:
                return getattr(self.core, name)

            def next(self, *arguments: int) -> Any:
                self.core.next(*arguments)
                reader.core = self.core
                raise pyqstore.StoreCorrupt("damaged")

        reader.core = Damaged(reader.core)  # type: ignore[assignment]
        take = type(reader).take

        def interrupt(*arguments: Any) -> Any:
            monkeypatch.setattr(type(reader), "take", take)
            raise KeyboardInterrupt

        monkeypatch.setattr(type(reader), "take", interrupt)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll()
        assert consumer.position("a") == 1
        with pytest.raises(pyqstore.StoreCorrupt, match="damaged"):
            consumer.poll()
        assert consumer.position("a") == 2
        assert len(consumer.poll()) == 0


def test_an_interrupted_change_of_the_group_leaves_no_stream_without_a_reader(
    store: pyqstore.Store,
) -> None:
    names = ["a", "b", "c", "d"]
    for name in names:
        store.stream(name)
    told: list[str] = []
    for step in itertools.count(1):
        told.clear()
        with store.stream_consumer(
            names, group="g", on_assign=told.extend, on_revoke=lambda _: None
        ) as first:
            _, is_first = interrupted(step, first.poll)
            first.poll()
            assert sorted(set(told)) == first.assignment == names
            with store.stream_consumer(names, group="g") as second:
                _, is_second = interrupted(step, first.poll)
                first.poll()
                _, is_third = interrupted(step, second.poll)
                second.poll()
                first.poll()
                assert (len(first.assignment), len(second.assignment)) == (2, 2)
                assert sorted(first.assignment + second.assignment) == names
                _, is_closing = interrupted(step, second.close)
                second.close()
            first.poll()
            assert first.assignment == names
        if not (is_first or is_second or is_third or is_closing):
            break
    assert step > 20


def test_a_consumer_that_was_interrupted_while_it_was_made_has_no_streams(
    store: pyqstore.Store,
) -> None:
    store.stream("a").publish(b"one")
    for step in itertools.count(1):
        made, is_interrupted = interrupted(step, lambda: store.stream_consumer("a", group="g"))
        if made is not None:
            made.close()
        with store.stream_consumer("a", group="g") as consumer:
            assert bodies(consumer.poll()) == [b"one"]
        if not is_interrupted:
            break


def test_an_interrupted_commit_leaves_nothing_that_a_later_one_commits(
    store: pyqstore.Store,
) -> None:
    store.stream("a").publish_batch(pa.table({"body": [b"x"] * 1000}))
    with store.stream_consumer("a", group="g") as consumer:
        for step in itertools.count(1):
            consumer.seek("a", step)
            _, is_interrupted = interrupted(step, consumer.commit)
            consumer.seek("a", 2 * step)
            consumer.commit()
            assert consumer.committed("a") == 2 * step
            if not is_interrupted:
                break


def test_a_reader_that_was_interrupted_goes_on_where_it_was(store: pyqstore.Store) -> None:
    stream = store.stream("a")
    for _ in range(3):
        stream.publish_batch(pa.table({"body": [b"x" * 100_000] * 3}))
        store.checkpoint()
    for step in itertools.count(1):
        reader = stream.read()
        offsets: list[int] = []
        batch, is_interrupted = interrupted(step, reader.read_next_batch)
        if batch is not None:
            offsets += batch["offset"].to_pylist()
        for batch in reader:
            offsets += batch["offset"].to_pylist()
        assert offsets == list(range(9))
        if not is_interrupted:
            break


# asyncio.


def paused(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Each look of a consumer says when it has found something, and waits until it may go on."""
    has_found, go_on = threading.Event(), threading.Event()
    look = StreamConsumer._look

    def waiting(*arguments: Any) -> Any:
        found = look(*arguments)
        has_found.set()
        assert go_on.wait(60)
        return found

    monkeypatch.setattr(StreamConsumer, "_look", waiting)
    return has_found, go_on


async def set_in_a_thread(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 60)


async def test_a_cancelled_poll_that_had_found_rows_gives_them_to_the_next(
    aio_store: aio.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await aio_store.stream("a")
    await stream.publish(b"one")
    async with await aio_store.stream_consumer("a", group="g") as consumer:
        with monkeypatch.context() as patch:
            has_found, go_on = paused(patch)
            poll = asyncio.create_task(consumer.poll(timeout=30))
            await set_in_a_thread(has_found)
            poll.cancel()
            with pytest.raises(asyncio.CancelledError):
                await poll
            go_on.set()
            assert await consumer.position("a") == 0
        await stream.publish(b"two")
        assert bodies(await consumer.poll(timeout=30)) == [b"one"]
        await consumer.commit()
        assert await consumer.committed("a") == 1
        assert bodies(await consumer.poll(timeout=30)) == [b"two"]


async def cancelled_poll(consumer: aio.StreamConsumer, timeout: float | None) -> None:
    """A poll that was cancelled while its thread was in it."""
    began = threading.Event()
    look = consumer._twin._look

    def noted(*arguments: Any) -> Any:
        began.set()
        return look(*arguments)

    consumer._twin._look = noted  # type: ignore[method-assign, assignment]
    poll = asyncio.create_task(consumer.poll(timeout=timeout))
    await set_in_a_thread(began)
    del consumer._twin._look
    poll.cancel()
    with pytest.raises(asyncio.CancelledError):
        await poll


async def test_what_is_asked_after_a_cancelled_poll_is_answered(path: Path) -> None:
    async with aio.open(path) as store, await store.channel() as channel:
        stream = await store.stream("a")
        async with await store.stream_consumer("a", group="g") as consumer:

            async def in_a_transaction() -> None:
                async with channel.transaction() as tx:
                    await tx.commit_offsets(consumer)

            verbs: list[Callable[[], Any]] = [
                consumer.commit,
                in_a_transaction,
                consumer.lag,
                lambda: consumer.position("a"),
                lambda: consumer.committed("a"),
                lambda: consumer.seek("a", stream.next - 1),
                consumer.pause,
                consumer.resume,
            ]
            for number, verb in enumerate(verbs):
                await cancelled_poll(consumer, None)
                await stream.publish(b"%d" % number)
                await verb()
                if verb == consumer.pause:
                    assert len(await consumer.poll()) == 0
                    await cancelled_poll(consumer, None)
                    await consumer.resume()
                assert bodies(await consumer.poll()) == [b"%d" % number]
            for timeout in (None, 30, 0):
                await cancelled_poll(consumer, None)
                await stream.publish(b"more")
                assert bodies(await consumer.poll(timeout=timeout)) == [b"more"]
            await cancelled_poll(consumer, None)
        assert consumer.closed


async def steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def outcome(task: "asyncio.Future[pa.RecordBatch]") -> list[bytes]:
    task.cancel()
    try:
        return bodies(await task)
    except asyncio.CancelledError:
        return []


async def test_polls_that_are_cancelled_at_any_step_lose_no_rows(aio_store: aio.Store) -> None:
    stream = await aio_store.stream("a")
    read: list[bytes] = []
    async with await aio_store.stream_consumer("a", group="g") as consumer:
        for number in range(150):
            await stream.publish(b"%d" % number)
            poll = asyncio.create_task(consumer.poll(timeout=30))
            await steps(number % 50)
            read += await outcome(poll)
        while len(read) < 150:
            batch = await consumer.poll(timeout=30)
            assert len(batch) > 0
            read += bodies(batch)
    assert read == [b"%d" % number for number in range(150)]


async def test_an_iteration_goes_on_after_a_step_that_was_cancelled(path: Path) -> None:
    async def step(batches: AsyncIterator[pa.RecordBatch]) -> pa.RecordBatch:
        return await anext(batches)

    async with aio.open(path) as store:
        stream = await store.stream("a")
        await stream.publish(b"before")
        batches = stream.read("next", follow=True)
        read: list[bytes] = []
        first = asyncio.create_task(step(batches))
        await steps(3)
        read += await outcome(first)
        # The reader was made, or is made now: what comes from here on is read by it.
        await asyncio.wait_for(_made(batches), 60)
        for number in range(100):
            await stream.publish(b"%d" % number)
            task = asyncio.create_task(step(batches))
            await steps(number % 50)
            read += await outcome(task)
        while len(read) < 100:
            read += bodies(await anext(batches))
        assert read == [b"%d" % number for number in range(100)]


async def _made(batches: Any) -> None:
    await batches._calls.rest()
    if batches._reader is None:
        await batches._calls.run(batches._open)


async def test_a_second_task_that_polls_is_refused(aio_store: aio.Store) -> None:
    await aio_store.stream("a")
    async with await aio_store.stream_consumer("a", group="g") as consumer:
        poll = asyncio.create_task(consumer.poll(timeout=None))
        await steps(1)
        with pytest.raises(RuntimeError, match="another task is polling"):
            await consumer.poll()
        assert await outcome(poll) == []

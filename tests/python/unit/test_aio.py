"""pyqstore.aio: confirms, deliveries and errors as the synchronous channel has them, awaited."""

import asyncio
import gc
import os
import threading
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
from pyqstore import aio

PERSISTENT = pyqstore.Properties(delivery_mode=2)
LARGE = bytes(10_000)  # goes to the message store, so publishing and reading it wait for files

Work = Callable[[aio.Store, aio.Channel], Awaitable[None]]


@pytest.fixture
def run(path: Path) -> Callable[..., None]:
    """Run a coroutine function of a store and a channel with a durable queue "q"."""

    def run(work: Work, **options: Any) -> None:
        async def main() -> None:
            options.setdefault("journal_file_bytes", "1MiB")
            async with await aio.open(path, **options) as store, await store.channel() as channel:
                await channel.queue_declare("q", durable=True)
                async with asyncio.timeout(60):
                    await work(store, channel)

        asyncio.run(main(), debug=False)

    return run


async def fill(channel: aio.Channel, count: int, body: bytes = b"") -> None:
    for i in range(count):
        await channel.basic_publish("", "q", b"%d" % i + body, PERSISTENT)


def number_of(message: aio.Message | None) -> int:
    assert message is not None
    return int(message.body.rstrip(b"\0"))


@pytest.mark.parametrize("body", [b"small", LARGE])
def test_a_publish_returns_when_it_is_durable(run: Callable[..., None], body: bytes) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        await channel.confirm_select()
        for number in range(1, 6):
            assert await channel.basic_publish("", "q", body, PERSISTENT) == number
            stats = await store.stats()
            assert stats["durable_lsn"] == stats["appended_lsn"]
        assert (await store.queue_status("q"))["messages_ready"] == 5

    run(work)


def test_ten_thousand_confirms_are_outstanding_at_once(run: Callable[..., None]) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        await channel.confirm_select()
        before = (await store.stats())["commits"]
        publishes = [channel.basic_publish("", "q", b"x", PERSISTENT) for _ in range(10_000)]
        assert sorted(await asyncio.gather(*publishes)) == list(range(1, 10_001))
        assert (await store.stats())["commits"] - before < 2_000  # in groups
        assert await channel.wait_for_confirms(timeout=0) is True

    run(work, journal_file_bytes="64MiB")


def test_large_and_small_publishes_keep_their_order(run: Callable[..., None]) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        await channel.confirm_select()
        await asyncio.gather(
            *(
                channel.basic_publish("", "q", b"%d" % i + (LARGE if i % 3 == 0 else b""))
                for i in range(200)
            )
        )
        assert [number_of(await channel.basic_get("q")) for _ in range(200)] == list(range(200))

    run(work)


def test_a_returned_message_comes_before_its_confirm(run: Callable[..., None]) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        returned: list[bytes] = []
        channel.add_return_listener(lambda message: returned.append(message.body))
        await channel.confirm_select()
        await channel.basic_publish("", "nobody", b"back", mandatory=True)
        assert returned == [b"back"]

    run(work)


def test_a_returned_message_comes_without_confirms_too(run: Callable[..., None]) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        came: asyncio.Future[pyqstore.ReturnedMessage]
        came = asyncio.get_running_loop().create_future()
        channel.add_return_listener(came.set_result)
        assert await channel.basic_publish("", "nobody", b"back", mandatory=True) == 0
        assert (await came).reply_code == 312

    run(work)


def test_a_refused_publish_raises(run: Callable[..., None]) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        await channel.queue_declare(
            "full", arguments={"x-max-length": 2, "x-overflow": "reject-publish"}
        )
        await channel.confirm_select()
        heard: list[tuple[str, int]] = []
        channel.add_confirm_listener(
            lambda number, _: heard.append(("ack", number)),
            lambda number, _: heard.append(("nack", number)),
        )
        results = await asyncio.gather(
            *(channel.basic_publish("", "full", b"x") for _ in range(3)), return_exceptions=True
        )
        assert results[:2] == [1, 2]
        assert isinstance(results[2], pyqstore.PublishRefused)
        assert results[2].publish_number == 3
        assert ("nack", 3) in heard
        assert await channel.wait_for_confirms() is False
        assert await channel.wait_for_confirms() is True

    run(work)


def test_wait_for_confirms_needs_confirm_mode_and_times_out(run: Callable[..., None]) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        with pytest.raises(pyqstore.PreconditionFailed):
            await channel.wait_for_confirms()
        await channel.confirm_select()
        publishing = asyncio.create_task(channel.basic_publish("", "q", b"x", PERSISTENT))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await channel.wait_for_confirms(timeout=0)
        assert await channel.wait_for_confirms() is True
        assert await publishing == 1

    run(work, commit_delay_us=200_000)


def test_a_batch_is_waited_for(run: Callable[..., None]) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        await channel.confirm_select()
        receipt = await channel.publish_batch(
            pa.table({"body": [b"a", b"b", b"c"]}), routing_key="q"
        )
        assert (receipt.first_publish_number, receipt.last_publish_number) == (1, 3)
        assert await receipt.wait(timeout=10)
        assert receipt.done
        assert await channel.wait_for_confirms(timeout=10)
        assert await channel.basic_publish("", "q", b"d", PERSISTENT) == 4

    run(work)


@pytest.mark.parametrize("auto_ack", [False, True])
@pytest.mark.parametrize("body", [b"", LARGE])
def test_messages_are_iterated_as_they_come(
    run: Callable[..., None], body: bytes, auto_ack: bool
) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        async def publish() -> None:
            async with await store.channel() as other:
                for i in range(100):
                    await other.basic_publish("", "q", b"%d" % i + body, PERSISTENT)
                    if i % 10 == 0:
                        await asyncio.sleep(0.002)

        publishing = asyncio.create_task(publish())
        seen = []
        async with channel.consume("q", auto_ack=auto_ack) as messages:
            async for message in messages:
                assert isinstance(message, pyqstore.Message)
                assert not message.redelivered
                seen.append(number_of(message))
                if not auto_ack:
                    await message.ack()
                if len(seen) == 100:
                    break
        await publishing
        assert seen == list(range(100))
        status = await store.queue_status("q")
        assert (status["messages_ready"], status["messages_unacked"]) == (0, 0)
        assert status["consumers"] == 0

    run(work)


def test_an_iteration_ends_for_want_of_messages_and_with_its_queue(
    run: Callable[..., None],
) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        await fill(channel, 3)
        seen = [number_of(m) async for m in channel.consume("q", inactivity_timeout=0.01)]
        assert seen == [0, 1, 2]
        cancelled: list[str] = []
        channel.add_cancel_listener(cancelled.append)

        async def iterate() -> int:
            return len([message async for message in channel.consume("q")])

        iterating = asyncio.create_task(iterate())
        await asyncio.sleep(0.01)
        async with await store.channel() as other:
            await other.queue_delete("q")
        assert await iterating == 0
        assert len(cancelled) == 1

    run(work)


def test_a_forgotten_iterator_cancels_its_consumer(run: Callable[..., None]) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        await fill(channel, 3)
        async for message in channel.consume("q"):
            assert number_of(message) == 0
            break
        gc.collect()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        status = await store.queue_status("q")
        assert (status["consumers"], status["messages_ready"]) == (0, 2)

    run(work)


def test_callbacks_run_by_themselves(run: Callable[..., None]) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        seen: list[int] = []
        done = asyncio.Event()

        async def slow(message: aio.Message) -> None:
            await asyncio.sleep(0)
            seen.append(number_of(message))
            await message.ack()
            if len(seen) == 20:
                done.set()

        await channel.basic_qos(prefetch_count=3)
        tag = await channel.basic_consume("q", slow)
        await fill(channel, 20)
        await done.wait()
        assert seen == list(range(20))
        await channel.basic_cancel(tag)
        plain: list[bytes] = []
        await channel.basic_consume("q", lambda message: plain.append(message.body), auto_ack=True)
        await fill(channel, 5)
        while len(plain) < 5:
            await asyncio.sleep(0.001)
        consuming = asyncio.create_task(channel.start_consuming())
        await asyncio.sleep(0)
        assert not consuming.done()
        await channel.stop_consuming()
        await consuming
        assert (await store.queue_status("q"))["messages_unacked"] == 0

    run(work)


def test_who_takes_a_message_leaves_the_others_their_wake_up(run: Callable[..., None]) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        async with await store.channel() as other, asyncio.timeout(5):
            await channel.queue_declare("b")
            await channel.confirm_select()
            busy, patient = await channel.basic_consume("q"), await channel.basic_consume("b")
            waiting = asyncio.create_task(channel.next_delivery(patient))
            await asyncio.sleep(0.01)  # its bell is armed now
            await fill(other, 1)
            assert number_of(await channel.next_delivery(busy)) == 0
            await other.basic_publish("", "b", b"7")
            assert number_of(await waiting) == 7
            publishing = asyncio.create_task(channel.basic_publish("", "nobody", b"", PERSISTENT))
            await fill(other, 1)
            assert number_of(await channel.next_delivery(busy)) == 0
            assert await publishing == 1
            cancelled = asyncio.Event()
            channel.add_cancel_listener(lambda _: cancelled.set())
            await fill(other, 1)
            assert number_of(await channel.next_delivery(busy)) == 0
            await other.queue_delete("b")
            await cancelled.wait()

    run(work)


def test_what_a_callback_raises_is_reported_and_the_consumer_goes_on(
    run: Callable[..., None],
) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        reported: list[BaseException] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: reported.append(context["exception"])
        )
        seen: list[int] = []

        def callback(message: aio.Message) -> None:
            seen.append(number_of(message))
            raise ValueError(len(seen))

        await channel.basic_consume("q", callback)
        await fill(channel, 2)
        while len(reported) < 2:
            await asyncio.sleep(0.001)
        assert seen == [0, 1]
        assert [str(error) for error in reported] == ["1", "2"]

    run(work)


def test_a_batch_is_got_when_it_comes(run: Callable[..., None]) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        assert len(await channel.get_batch("q")) == 0
        assert len(await channel.get_batch("q", timeout=0.02)) == 0
        getting = asyncio.create_task(channel.get_batch("q", timeout=None))
        await asyncio.sleep(0.01)
        async with await store.channel() as other:
            await fill(other, 1)
            batch = await getting
            assert batch.column("body").to_pylist() == [b"0"]
            await fill(other, 10)
        batch = await channel.get_batch("q", 5, timeout=1, auto_ack=True)
        assert batch.column("body").to_pylist() == [b"%d" % i for i in range(5)]
        status = await store.queue_status("q")
        assert (status["messages_ready"], status["messages_unacked"]) == (5, 1)

    run(work)


def test_a_transaction_commits_and_auto_ack_is_no_part_of_it(run: Callable[..., None]) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        await fill(channel, 2)
        await channel.tx_select()
        assert number_of(await channel.basic_get("q", auto_ack=True)) == 0
        await channel.basic_publish("", "q", b"2", PERSISTENT)
        await channel.tx_rollback()
        assert (await store.queue_status("q"))["messages_ready"] == 1
        await channel.basic_publish("", "q", b"3", PERSISTENT)
        assert await channel.tx_commit(key="once") is True
        assert await store.transaction_known("once")
        status = await store.queue_status("q")
        assert (status["messages_ready"], status["messages_unacked"]) == (2, 0)

    run(work)


def test_an_error_closes_the_channel_and_frees_whoever_waits(run: Callable[..., None]) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        await channel.confirm_select()
        waiting = [
            asyncio.create_task(channel.basic_publish("", "q", b"x", PERSISTENT)),
            asyncio.create_task(anext(channel.consume("nothing"))),
            asyncio.create_task(channel.get_batch("nothing", timeout=None)),
        ]
        await asyncio.sleep(0)
        with pytest.raises(pyqstore.PreconditionFailed):
            await channel.basic_ack(99)
        assert channel.closed
        for task in waiting:
            with pytest.raises(pyqstore.ChannelClosed):
                await task
        with pytest.raises(pyqstore.ChannelClosed):
            await channel.basic_get("q")

    async def main(store: aio.Store, channel: aio.Channel) -> None:
        await channel.queue_declare("nothing")
        await work(store, channel)

    run(main, commit_delay_us=100_000)


@pytest.mark.parametrize("what", ["channel", "connection", "store"])
def test_closing_rejects_whoever_waits(run: Callable[..., None], what: str) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        connection = await store.connection("c")
        shared = await connection.channel()
        await shared.confirm_select()
        waiting: list[asyncio.Task[Any]] = [
            asyncio.create_task(anext(shared.consume("q"))),
            asyncio.create_task(shared.get_batch("q", timeout=None)),
        ]
        await asyncio.sleep(0.02)
        closing = {"channel": shared, "connection": connection, "store": store}[what]
        await closing.close()
        # StoreClosed: on a slow machine the batch was still on its way to a thread.
        for task in waiting:
            with pytest.raises((pyqstore.ChannelClosed, pyqstore.StoreClosed)):
                await task
        assert shared.closed
        await shared.close()
        await connection.close()

    run(work)


def test_a_channel_belongs_to_its_loop(path: Path) -> None:
    async def open_both() -> tuple[aio.Store, aio.Channel]:
        store = await aio.open(path)
        return store, await store.channel()

    with asyncio.Runner() as first, asyncio.Runner() as second:
        store, channel = first.run(open_both())
        with pytest.raises(RuntimeError, match="another event loop"):
            second.run(channel.basic_get("q"))
        with pytest.raises(RuntimeError, match="another event loop"):
            second.run(channel.close())
        first.run(channel.close())
        second.run(store.close())


def test_channels_of_several_loops_share_a_store(path: Path) -> None:
    counts = {}

    async def consume(store: aio.Store, name: int) -> None:
        async with await store.channel() as channel:
            await channel.basic_qos(1)
            messages = channel.consume("q", inactivity_timeout=0.5)
            counts[name] = 0
            async for message in messages:
                counts[name] += 1
                await message.ack()

    async def main() -> None:
        async with await aio.open(path) as store, await store.channel() as channel:
            await channel.queue_declare("q")
            threads = [
                threading.Thread(target=lambda i=i: asyncio.run(consume(store, i)))
                for i in range(3)
            ]
            for thread in threads:
                thread.start()
            for _ in range(300):
                await channel.basic_publish("", "q", b"x")
            await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))

    asyncio.run(main())
    assert sum(counts.values()) == 300


def test_no_descriptor_is_left(path: Path) -> None:
    async def main() -> None:
        for _ in range(20):
            async with await aio.open(path) as store:
                channels = [await store.channel() for _ in range(10)]
                await channels[0].queue_declare("q")
                await asyncio.gather(
                    *(channel.basic_publish("", "q", b"x") for channel in channels)
                )
                for channel in channels:
                    await channel.close()

    asyncio.run(main())
    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(main())
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_forgotten_channel_warns_and_is_closed(run: Callable[..., None]) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        forgotten = await store.channel()
        await fill(channel, 1)
        assert await forgotten.basic_get("q") is not None
        del forgotten
        with pytest.warns(ResourceWarning, match="unclosed channel"):
            gc.collect()
        await asyncio.sleep(0)
        assert len(os.listdir("/proc/self/fd")) == before
        assert (await store.queue_status("q"))["messages_ready"] == 1

    run(work)


def test_a_loop_that_is_gone_leaves_no_thread_waiting(path: Path) -> None:
    async def leave() -> tuple[aio.Store, aio.Channel]:
        store = await aio.open(path)
        channel = await store.channel()
        await channel.queue_declare("q", durable=True)
        task = asyncio.create_task(channel.basic_publish("", "q", LARGE, PERSISTENT))
        await asyncio.sleep(0)
        task.cancel()
        return store, channel

    store, channel = asyncio.run(leave())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del channel
        gc.collect()
    asyncio.run(store.close())
    assert store.closed


def test_a_closed_store_says_so(path: Path) -> None:
    async def main() -> None:
        store = await aio.open(path)
        assert repr(store) == f"<aio.Store '{path}'>"
        await asyncio.gather(store.close(), store.close())
        assert repr(store) == f"<aio.Store '{path}' (closed)>"
        for verb in (store.sync, store.checkpoint, store.queues, store.channel, store.connection):
            with pytest.raises(pyqstore.StoreClosed):
                await verb()

    asyncio.run(main())


def test_a_cancelled_open_closes_the_store(path: Path) -> None:
    async def main() -> None:
        opening = asyncio.create_task(aio.open(path))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        for _ in range(1000):
            try:
                store = await aio.open(path)
            except (pyqstore.StoreLocked, pyqstore.StoreNotFound):
                await asyncio.sleep(0.005)
            else:
                await store.close()
                return
        pytest.fail("the store stayed open")

    asyncio.run(main())


def test_the_loop_runs_on_while_a_publisher_waits_for_room(run: Callable[..., None]) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.create_task(tick())
        body = bytes(3000)
        for _ in range(300):  # many times what may wait to be synced, and the memory budget
            await channel.basic_publish("", "q", body, PERSISTENT)
        ticking.cancel()
        assert ticks > 5
        seen = 0
        while await channel.basic_get("q", auto_ack=True) is not None:  # from the disk
            seen += 1
        assert seen == 300

    run(work, memory_budget="256KiB", journal_file_bytes="64KiB", commit_delay_us=5000)


def test_what_leaves_a_queue_is_seen_off_behind_the_loop(run: Callable[..., None]) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        arguments = {
            "x-max-length": 2,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "q",
        }
        await channel.queue_declare("short", durable=True, arguments=arguments)
        for i in range(10):
            await channel.basic_publish("", "short", b"%d" % i, PERSISTENT)
        while (await store.queue_status("q"))["messages_ready"] < 8:
            await asyncio.sleep(0.001)
        message = await channel.basic_get("short")
        assert message is not None
        await message.reject()
        while (await store.queue_status("q"))["messages_ready"] < 9:
            await asyncio.sleep(0.001)
        batch = await channel.get_batch("q")
        assert batch.column("body").to_pylist() == [b"%d" % i for i in range(9)]
        assert (await store.queue_status("short"))["messages_ready"] == 1

    run(work)


def test_a_forked_child_is_told(run: Callable[..., None]) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        await fill(channel, 1)
        child = os.fork()
        if child == 0:
            told = 1
            try:
                await channel.basic_get("q")
            except pyqstore.ForkedStore:
                told = 0
            finally:
                os._exit(told)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert number_of(await channel.basic_get("q")) == 0

    run(work)

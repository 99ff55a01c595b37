"""The queue that loses nothing by default, for asyncio."""

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest

import pyqstore
from pyqstore import aio


@pytest.fixture
def jobs(aio_store: aio.Store, runner: asyncio.Runner) -> aio.Queue:
    async def make() -> aio.Queue:
        return await aio_store.queue("jobs")

    return runner.run(make())


async def test_what_was_put_is_there_after_close_and_open(path: Path) -> None:
    async with aio.open(path) as store:
        queue = await store.queue("jobs")
        await queue.put(b"1")
        assert await queue.put_many(["2", "3"]) == 2
        assert await queue.put_many(pyarrow.table({"body": [b"4"]})) == 1
    async with aio.open(path) as store:
        queue = await store.queue("jobs")
        assert len(queue) == 4
        assert [message.body for message in await queue.peek(9)] == [b"1", b"2", b"3", b"4"]
        async with queue.get(timeout=30) as message:
            assert message.body == b"1"
        message = await queue.get(timeout=0)
        await message.nack()
        assert len(queue) == 3
        assert await queue.purge() == 3


async def test_message_is_given_back_when_the_body_raises(jobs: aio.Queue) -> None:
    await jobs.put(b"1")
    with pytest.raises(ZeroDivisionError):
        async with jobs.get():
            1 / 0  # noqa: B018
    async with jobs.get(timeout=0) as message:
        assert message.redelivered
        await message.ack()
    assert len(jobs) == 0
    with pytest.raises(pyqstore.Empty):
        await jobs.get(timeout=0.02)
    await jobs.put(b"2")
    message = await jobs.get()
    with pytest.raises(TypeError, match="async with"), message:
        pass


async def test_get_waits_and_one_that_is_cancelled_takes_nothing(
    aio_store: aio.Store, jobs: aio.Queue
) -> None:
    waiting = [asyncio.ensure_future(jobs.get()) for _ in range(3)]
    await asyncio.sleep(0.05)
    waiting[0].cancel()
    await asyncio.wait([waiting[0]])
    await asyncio.gather(*(jobs.put(b"%d" % number) for number in range(2)))
    got = await asyncio.gather(*waiting[1:])
    assert sorted(message.body for message in got) == [b"0", b"1"]
    for message in got:
        await message.ack()
    assert (await aio_store.queue_status("jobs"))["consumers"] == 0


async def test_iteration_acknowledges_when_the_body_ends(jobs: aio.Queue) -> None:
    await jobs.put_many(["1", "2", "3"])
    seen = []
    async for message in jobs:
        seen.append(message.body)
        if len(seen) == 2:
            break
    gc.collect()
    while len(jobs) < 2:  # the loop closes the iteration soon
        await asyncio.sleep(0.01)
    assert [message.body for message in await jobs.peek(9)] == [b"2", b"3"]


@pytest.mark.filterwarnings("error")
async def test_queue_leaves_without_a_warning(aio_store: aio.Store) -> None:
    other = await aio_store.queue("other")
    await other.put(b"1")
    async with other.get():
        pass
    del other
    gc.collect()
    await asyncio.sleep(0)


async def test_put_many_that_waits_for_the_loop_leaves_its_threads_to_others(
    aio_store: aio.Store, jobs: aio.Queue
) -> None:
    loop = asyncio.get_running_loop()

    async def row() -> bytes:
        await aio_store.sync()  # in a thread of the store
        return b"row"

    def rows() -> Iterator[bytes]:
        for _ in range(3):
            yield asyncio.run_coroutine_threadsafe(row(), loop).result()

    assert await asyncio.gather(*(jobs.put_many(rows()) for _ in range(8))) == [3] * 8


async def test_warning_of_an_argument_names_the_line_that_gave_it(aio_store: aio.Store) -> None:
    with pytest.warns(pyqstore.UnknownArgument, match="max-length") as warned:
        await aio_store.queue("a", max_lenght=5)
    assert warned[0].filename == __file__


# The worker.


async def test_worker_handles_retries_and_leaves_dead_letters(
    aio_store: aio.Store, jobs: aio.Queue
) -> None:
    await jobs.put_many([b"good", b"poison", b"good"])
    stop, seen, tries = asyncio.Event(), [], []

    async def handle(message: aio.Message) -> None:
        if message.body == b"poison":
            tries.append(message.delivery_count)
            raise KeyError("order")
        seen.append(message.body)

    working = asyncio.create_task(jobs.work(handle, retries=2, backoff=0.05, stop=stop))
    dead = await aio_store.queue("jobs.dead")
    async with dead.get() as message:
        assert message.body == b"poison"
        headers = message.properties.headers
        assert (headers["x-attempts"], headers["x-queue"]) == (3, "jobs")
    while len(seen) < 2:
        await asyncio.sleep(0.001)
    stop.set()
    await working
    assert seen == [b"good", b"good"]
    assert tries == [0, 1, 2]
    assert len(jobs) == len(dead) == 0


async def test_worker_that_is_cancelled_gives_back_what_is_under_way(jobs: aio.Queue) -> None:
    await jobs.put_many([b"1", b"2"])
    begun = asyncio.Semaphore(0)

    async def handle(message: aio.Message) -> None:
        begun.release()
        await asyncio.sleep(3600)

    working = asyncio.create_task(jobs.work(handle, tasks=2))
    await begun.acquire()
    await begun.acquire()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert len(jobs) == 2


async def test_worker_takes_plain_functions_and_ends_with_what_the_store_raises(
    jobs: aio.Queue,
) -> None:
    seen: list[bytes] = []
    await jobs.put(b"1")
    working = asyncio.create_task(jobs.work(lambda message: seen.append(message.body)))
    while len(seen) == 0:
        await asyncio.sleep(0.01)
    await jobs.delete()
    with pytest.raises(pyqstore.NotFound):
        await working


async def test_worker_ends_on_a_sigterm_that_another_thread_has(jobs: aio.Queue) -> None:
    def beside() -> None:
        time.sleep(0.3)  # for the loop to wait; it ends in any case
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    working = asyncio.create_task(jobs.work(lambda message: None))
    thread = threading.Thread(target=beside)
    while signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        await asyncio.sleep(0.01)
    thread.start()
    await working
    thread.join()


WORK = """
import asyncio, os, signal, sys
from pyqstore import aio

async def handle(message):
    print(message.body.decode(), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.5)
    print("done", flush=True)

async def main():
    store = await aio.open(sys.argv[1])
    await (await store.queue("jobs")).work(handle, tasks=1)
    print("ended", flush=True)
    await store.close()

asyncio.run(main())
"""


def test_worker_ends_on_sigterm_after_what_is_under_way(path: Path) -> None:
    with pyqstore.open(path) as store:
        store.queue("jobs").put_many(["1", "2"])
    process = subprocess.Popen(
        [sys.executable, "-c", WORK, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.communicate()[0] == "1\ndone\nended\n"
    assert process.returncode == 0
    with pyqstore.open(path) as store:
        assert [message.body for message in store.queue("jobs").peek(9)] == [b"2"]


BESIDE = """
import asyncio, os, signal, sys
from pyqstore import aio

async def main():
    works, begun = asyncio.Event(), asyncio.Event()

    async def handle(message):
        print("begun", flush=True)
        begun.set()
        await asyncio.sleep(0.5)
        print("done", flush=True)

    async with aio.open(sys.argv[1]) as store:
        jobs, other = await store.queue("jobs"), await store.queue("other")
        await other.put(b"1")
        stop = asyncio.Event()
        first = asyncio.create_task(other.work(lambda message: works.set(), stop=stop))
        await works.wait()
        second = asyncio.create_task(jobs.work(handle))
        await begun.wait()
        stop.set()
        await first
        os.kill(os.getpid(), signal.SIGTERM)
        await second
        print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, flush=True)

asyncio.run(main())
"""


def test_worker_beside_another_that_ended_still_heeds_sigterm(path: Path) -> None:
    with pyqstore.open(path) as store:
        store.queue("jobs").put(b"1")
    done = subprocess.run(
        [sys.executable, "-c", BESIDE, str(path)], stdout=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "begun\ndone\nTrue\n")


async def test_call_that_waited_for_a_cancelled_task_failed(
    aio_store: aio.Store, jobs: aio.Queue
) -> None:
    await jobs.put(b"1")

    async def handle(message: aio.Message) -> None:
        task = asyncio.create_task(asyncio.sleep(3600))
        task.cancel()
        await task

    working = asyncio.create_task(jobs.work(handle, retries=0))
    dead = await aio_store.queue("jobs.dead")
    async with dead.get(timeout=30) as message:
        assert "CancelledError" in message.properties.headers["x-error"]
    assert not working.done()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"tasks": 1.5}, TypeError),
        ({"tasks": 0}, ValueError),
        ({"stop": threading.Event()}, TypeError),  # its wait() would stop the loop
        ({"dead": ""}, ValueError),
    ],
)
async def test_worker_that_does_not_begin_makes_no_queue(
    aio_store: aio.Store, jobs: aio.Queue, wrong: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await jobs.work(print, **wrong)  # type: ignore[arg-type]
    assert await aio_store.queues() == ["jobs"]

"""Whatever is awaited, in whatever takes a coroutine; whatever is iterated, after a cancelled
``anext``."""

import asyncio
import importlib
import inspect
import pkgutil
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore import aio

from ..support import until

Way = Callable[[Any], Awaitable[Any]]
_MOST_TURNS = 40


async def in_a_group(awaited: Any) -> object:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(awaited)
    return task.result()


async def from_another_thread(awaited: Any) -> object:
    loop = asyncio.get_running_loop()
    return await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(awaited, loop).result())


async def awaited_alone(awaited: Any) -> object:
    return await awaited


async def gathered(awaited: Any) -> object:
    (result,) = await asyncio.gather(awaited)
    return result


async def waited_for(awaited: Any) -> object:
    done, _ = await asyncio.wait([asyncio.create_task(awaited)])
    return done.pop().result()


WAYS: dict[str, Way] = {
    "await": awaited_alone,
    "create_task": lambda awaited: asyncio.create_task(awaited),
    "ensure_future": lambda awaited: asyncio.ensure_future(awaited),
    "gather": gathered,
    "TaskGroup": in_a_group,
    "wait": waited_for,
    "wait_for": lambda awaited: asyncio.wait_for(awaited, 20),
    "shield": lambda awaited: asyncio.shield(awaited),
    "run_coroutine_threadsafe": from_another_thread,
}


def classes() -> Iterator[type]:
    """All that the asynchronous faces are made of."""
    for found in pkgutil.walk_packages(aio.__path__, "pyqstore.aio."):
        module = importlib.import_module(found.name)
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == found.name:
                yield kind


def test_all_that_can_be_awaited_is_a_coroutine() -> None:
    awaitable = [kind for kind in classes() if hasattr(kind, "__await__")]
    assert {"Connecting", "Getting", "Opening"} <= {kind.__name__ for kind in awaitable}
    for kind in (*awaitable, pyqstore._core.Confirm):
        assert issubclass(kind, Coroutine), kind


def test_no_verb_is_an_asynchronous_generator_which_ends_with_a_cancelled_anext() -> None:
    for kind in classes():
        for name, verb in vars(kind).items():
            assert not inspect.isasyncgenfunction(verb), f"{kind}.{name}"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("face", ["open", "connect", "get", "publish", "confirmed"])
async def test_what_is_awaited_can_be_given_to_whatever_takes_a_coroutine(
    path: Path, face: str, way: str
) -> None:
    use = WAYS[way]
    if face == "open":
        store = await use(aio.open(path))
        assert isinstance(store, aio.Store)
        await store.close()
        return
    async with aio.open(path) as store, await store.channel() as channel:
        queue = await store.queue("q")
        await queue.put(b"a")
        if face == "connect":
            connection = await use(aio.session.connect(store))
            assert isinstance(connection, aio.session.Connection)
            await connection.close()
        elif face == "get":
            message = await use(queue.get(timeout=20))
            assert message.body == b"a"
            await message.ack()
        else:
            if face == "confirmed":
                await channel.confirm_select()
            assert await use(channel.basic_publish("", "q", b"b")) == (face == "confirmed")
            assert len(queue) == 2


async def test_what_was_not_awaited_can_be_closed(path: Path) -> None:
    async with aio.open(path) as store:
        queue = await store.queue("q")
        for awaited in (aio.open(path), queue.get(), aio.session.connect(store)):
            awaited.close()
            with pytest.raises(RuntimeError, match="cannot reuse already awaited"):
                await awaited


async def impatient(messages: AsyncIterator[Any], count: int) -> list[Any]:
    """``count`` items, of which each was asked for by tasks that were cancelled, after any number
    of turns of the loop."""
    found: list[Any] = []
    turns = 0
    while len(found) < count:
        asking = asyncio.ensure_future(anext(messages))
        turns = (turns + 1) % _MOST_TURNS
        for _ in range(turns):
            if not asking.done():
                await asyncio.sleep(0)
        if asking.cancel():
            with pytest.raises(asyncio.CancelledError):
                await asking
            if turns == 0:  # else it might never come
                found.append(await anext(messages))
        else:
            found.append(await asking)
    return found


def rows(batches: list[Any]) -> list[bytes]:
    return [body for batch in batches for body in batch["body"].to_pylist()]


@pytest.mark.parametrize("follow", [False, True])
async def test_reading_a_stream_goes_on_after_a_cancelled_anext(
    aio_store: aio.Store, follow: bool
) -> None:
    stream = await aio_store.stream("s")
    sent = [b"%d" % number for number in range(20)]
    for body in sent:
        await stream.publish(body)
    got: list[bytes] = []
    batches = stream.read(follow=follow)
    while len(got) < len(sent):
        got += rows(await impatient(batches, 1))
    assert got == sent
    if not follow:
        assert await anext(batches, None) is None
        return
    asking = asyncio.ensure_future(anext(batches))
    await asyncio.sleep(0.01)  # likely in its thread then; wherever it is, nothing is lost
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await stream.publish(b"more")
    assert rows([await anext(batches)]) == [b"more"]


async def test_browsing_goes_on_after_a_cancelled_anext(path: Path) -> None:
    async with aio.open(path) as store, aio.session.connect(store) as connection:
        queue = await store.queue("q")
        sent = [b"%d" % number for number in range(20)]
        await queue.put_many(sent)
        batches = store.browse("q")
        assert rows(await impatient(batches, 1)) == sent
        assert await anext(batches, None) is None
        session = await connection.session()
        messages = session.browse(session.queue("q"))
        assert [each.body for each in await impatient(messages, 20)] == sent
        assert await anext(messages, None) is None


async def test_iterating_a_queue_goes_on_after_a_cancelled_anext(aio_store: aio.Store) -> None:
    queue = await aio_store.queue("q")
    sent = [b"%d" % number for number in range(30)]
    await queue.put_many(sent[:20])
    messages = aiter(queue)
    assert [each.body for each in await impatient(messages, 20)] == sent[:20]
    asking = asyncio.ensure_future(anext(messages))
    await until(lambda: aio_store._store.queue_status("q").consumers)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert aio_store._store.queue_status("q").messages_unacked == 0
    await queue.put_many(sent[20:])
    assert [each.body for each in await impatient(messages, 10)] == sent[20:]
    await messages.aclose()  # type: ignore[attr-defined]
    await until(lambda: len(queue) == 1)  # the last one, which is given back
    status = aio_store._store.queue_status("q")
    assert (status.messages_unacked, status.consumers) == (0, 0)
    assert await anext(messages, None) is None


async def test_consuming_goes_on_after_a_cancelled_anext(path: Path) -> None:
    async with aio.open(path) as store, await store.channel() as channel:
        queue = await store.queue("q")
        sent = [b"%d" % number for number in range(20)]
        await queue.put_many(sent)
        messages = channel.consume("q")
        assert [each.body for each in await impatient(messages, 20)] == sent
        await messages.aclose()


async def test_an_iterator_that_a_task_waits_for_refuses_another(aio_store: aio.Store) -> None:
    queue, stream = await aio_store.queue("q"), await aio_store.stream("s")
    for messages in (aiter(queue), stream.read(follow=True)):
        asking = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task "):
            await anext(messages)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

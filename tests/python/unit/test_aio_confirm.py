"""What ``basic_publish`` of an asynchronous channel returns: a coroutine and a future at once."""

import asyncio
import contextvars
import gc
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore import _core, aio

from ..support import PERSISTENT

LATE = 300_000  # microseconds before a commit: what is published meanwhile is confirmed together


@pytest.mark.options(commit_delay_us=LATE)
async def test_a_thousand_publishes_take_two_callbacks_each_and_no_task(
    aio_store: aio.Store, aio_channel: aio.Channel
) -> None:
    await aio_channel.confirm_select()
    loop = asyncio.get_running_loop()
    calls = tasks = 0
    call_soon = loop.call_soon

    def counted(*arguments: Any, **keywords: Any) -> asyncio.Handle:
        nonlocal calls
        calls += 1
        return call_soon(*arguments, **keywords)

    def make(loop: Any, coroutine: Any, **keywords: Any) -> asyncio.Task[Any]:
        nonlocal tasks
        tasks += 1
        return asyncio.Task(coroutine, loop=loop, **keywords)

    loop.call_soon = counted  # type: ignore[method-assign]
    loop.set_task_factory(make)
    before = (await aio_store.stats())["commits"]
    publishes = [aio_channel.basic_publish("", "q", b"x", PERSISTENT) for _ in range(1000)]
    assert await asyncio.gather(*publishes) == list(range(1, 1001))
    assert tasks == 0
    commits = (await aio_store.stats())["commits"] - before
    assert calls < 2000 + 20 * (1 + commits)  # one begins the publish, one wakes who awaits it


@pytest.mark.options(commit_delay_us=LATE)
async def test_a_gathering_of_which_a_publish_was_cancelled_ends(aio_channel: aio.Channel) -> None:
    await aio_channel.confirm_select()
    cancelled, kept = (aio_channel.basic_publish("", "q", b"x", PERSISTENT) for _ in range(2))
    cancelled.cancel("enough")
    both = asyncio.gather(cancelled, kept, return_exceptions=True)
    told, number = await asyncio.wait_for(both, 30)
    assert isinstance(told, asyncio.CancelledError)
    assert told.args == ("enough",)
    assert number == 1

    async def gathered() -> None:
        more = [aio_channel.basic_publish("", "q", b"x", PERSISTENT) for _ in range(100)]
        await asyncio.gather(*more, return_exceptions=True)

    task = asyncio.create_task(gathered())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(task), 30)


async def test_publishing_begins_in_its_turn_among_tasks(aio_channel: aio.Channel) -> None:
    await asyncio.gather(
        aio_channel.queue_declare("other", durable=True),
        aio_channel.basic_publish("", "other", b"0"),
        aio_channel.basic_publish("", "other", b"1"),
        aio_channel.queue_bind("other", "amq.fanout"),
        aio_channel.basic_publish("amq.fanout", "", b"2"),
        asyncio.create_task(aio_channel.basic_publish("", "other", b"3")),
        aio_channel.basic_publish("", "other", b"4"),
    )
    bodies = [(await aio_channel.basic_get("other")) for _ in range(5)]
    # The task was made, and so begins, before the gathering looked at anything.
    assert {message.body for message in bodies if message} == {b"0", b"1", b"2", b"4"} | (
        {b"3"} if bodies[4] else set()
    )
    rest = [message.body for message in bodies if message and message.body != b"3"]
    assert rest == [b"0", b"1", b"2", b"4"]


@pytest.mark.parametrize("mode", ["confirms", "none"])
async def test_everything_of_asyncio_takes_it(
    aio_store: aio.Store, aio_channel: aio.Channel, mode: str
) -> None:
    loop = asyncio.get_running_loop()
    if mode == "confirms":
        await aio_channel.confirm_select()

    def publish() -> aio.Confirm:
        return aio_channel.basic_publish("", "q", b"x", PERSISTENT)

    def elsewhere() -> int:
        return asyncio.run_coroutine_threadsafe(publish(), loop).result(30)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(publish())
    twice = publish()

    async def wait() -> int:
        return await twice

    numbers = [
        await publish(),
        task.result(),
        await asyncio.create_task(publish()),
        await asyncio.wait_for(publish(), 30),
        await asyncio.shield(publish()),
        await asyncio.ensure_future(publish()),
        *[await each for each in asyncio.as_completed([publish(), publish()])],
        *[each.result() for each in (await asyncio.wait([asyncio.create_task(publish())]))[0]],
        await asyncio.to_thread(elsewhere),
    ]
    assert await asyncio.gather(wait(), wait()) == [twice.result()] * 2
    assert twice.done()
    assert twice.exception() is None
    assert twice.publish_number == twice.result()
    total = len(numbers) + 1
    assert (await aio_store.queue_status("q"))["messages_ready"] == total
    expected = set(range(1, total)) if mode == "confirms" else {0}
    assert set(numbers) == expected


async def test_unconfirmed_tells_what_is_awaited(aio_channel: aio.Channel) -> None:
    await aio_channel.confirm_select()
    seen = aio_channel.unconfirmed
    assert seen == ([], [], [])
    async with asyncio.timeout(20):
        while not seen.numbers:  # unless a commit is as quick as a turn of the loop
            task = asyncio.create_task(aio_channel.basic_publish("", "q", b"x", PERSISTENT))
            await asyncio.sleep(0)
            seen = aio_channel.unconfirmed
            await task
    assert seen.queues == ["q"]
    assert aio_channel.unconfirmed == ([], [], [])


async def test_nothing_is_published_before_it_is_awaited(aio_channel: aio.Channel) -> None:
    await aio_channel.confirm_select()
    with pytest.warns(RuntimeWarning, match="never awaited"):
        aio_channel.basic_publish("", "q", b"forgotten")
    closed = aio_channel.basic_publish("", "q", b"closed")
    closed.close()
    cancelled = aio_channel.basic_publish("", "q", b"cancelled")
    assert cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    task = asyncio.create_task(aio_channel.basic_publish("", "q", b"task"))
    task.cancel()
    gathered = asyncio.gather(aio_channel.basic_publish("", "q", b"gathered"))
    gathered.cancel()
    await asyncio.gather(task, gathered, return_exceptions=True)
    assert task.cancelled()
    assert gathered.done()
    assert aio_channel.next_publish_number == 1


@pytest.mark.options(commit_delay_us=LATE)
async def test_a_cancelled_wait_leaves_the_others_waiting(
    aio_store: aio.Store, aio_channel: aio.Channel
) -> None:
    await aio_channel.confirm_select()

    async def publish() -> int:
        return await aio_channel.basic_publish("", "q", b"x", PERSISTENT)

    tasks = [asyncio.create_task(publish()) for _ in range(10)]
    shared = aio_channel.basic_publish("", "q", b"x", PERSISTENT)
    waiting = asyncio.gather(shared)
    await asyncio.sleep(0)
    tasks[3].cancel("enough")
    shared.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results.pop(3), asyncio.CancelledError)
    assert results == [1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert await aio_channel.wait_for_confirms(timeout=30)
    assert (await aio_store.queue_status("q"))["messages_ready"] == 11


async def test_errors_come_out_of_the_await(aio_channel: aio.Channel) -> None:
    await aio_channel.confirm_select()
    wrong: Any = 7
    results = await asyncio.gather(
        aio_channel.basic_publish("", "q", b"x"),
        aio_channel.basic_publish("", "q", wrong),
        aio_channel.basic_publish("nothing", "q", b"x"),
        aio_channel.basic_publish("", "q", b"x"),
        return_exceptions=True,
    )
    assert isinstance(results[1], TypeError)
    assert isinstance(results[2], pyqstore.NotFound)
    assert isinstance(results[0], pyqstore.ChannelClosed | int)  # confirmed before or not
    assert isinstance(results[3], pyqstore.ChannelClosed)


async def test_what_failed_and_was_not_awaited_is_reported(aio_channel: aio.Channel) -> None:
    await aio_channel.queue_declare(
        "full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
    )
    await aio_channel.confirm_select()
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    confirms = [aio_channel.basic_publish("", "full", b"x") for _ in range(2)]
    for confirm in confirms:
        confirm.add_done_callback(lambda _: None)
    assert await aio_channel.wait_for_confirms() is True  # nothing was begun yet
    await asyncio.sleep(0)
    assert await aio_channel.wait_for_confirms() is False
    await asyncio.sleep(0)
    del confirm
    confirms.clear()
    gc.collect()
    assert [type(context["exception"]) for context in told] == [pyqstore.PublishRefused]


async def test_a_task_goes_on_in_its_own_context(aio_channel: aio.Channel) -> None:
    await aio_channel.confirm_select()
    number: contextvars.ContextVar[int] = contextvars.ContextVar("number", default=-1)

    async def publish(mine: int) -> bool:
        number.set(mine)
        await aio_channel.basic_publish("", "q", b"x", PERSISTENT)
        return number.get() == mine

    assert all(await asyncio.gather(*(publish(mine) for mine in range(50))))
    assert number.get() == -1
    seen: list[int] = []
    confirm = aio_channel.basic_publish("", "q", b"x")
    number.set(5)
    confirm.add_done_callback(lambda _: seen.append(number.get()))
    number.set(6)
    await confirm
    await asyncio.sleep(0)
    assert seen == [5]


async def test_each_callback_has_its_context_when_the_first_one_is_taken_back(
    aio_channel: aio.Channel,
) -> None:
    await aio_channel.confirm_select()
    number: contextvars.ContextVar[int] = contextvars.ContextVar("number", default=-1)
    seen: list[int] = []
    confirm = aio_channel.basic_publish("", "q", b"x")

    def first(_: object) -> None:
        seen.append(0)

    for mine in (5, 6):
        number.set(mine)
        confirm.add_done_callback(first if mine == 5 else lambda _: seen.append(number.get()))
    confirm.set_result(1)  # which schedules the first
    confirm.remove_done_callback(first)
    confirm.add_done_callback(lambda _: seen.append(7))
    for _ in range(5):
        await asyncio.sleep(0)
    assert seen == [6, 7]


async def test_who_is_cancelled_before_its_callback_ran_has_heard_nothing(
    aio_channel: aio.Channel,
) -> None:
    await aio_channel.confirm_select()
    confirm = aio_channel.basic_publish("", "q", b"x")
    unheard: list[Exception] = []

    def first(_: object) -> None: ...

    contextvars.Context().run(confirm.add_done_callback, first)
    confirm.add_done_callback(lambda _: None)
    confirm.set_exception(LookupError(), unheard.append)
    confirm.remove_done_callback(first)
    await asyncio.sleep(0)  # which calls none: the first is gone
    confirm.cancel()
    assert [type(error) for error in unheard] == [LookupError]


async def test_a_callback_that_is_added_late_has_those_called_whose_turn_was_lost(
    aio_channel: aio.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    await aio_channel.confirm_select()
    confirm = aio_channel.basic_publish("", "q", b"x")
    came: list[int] = []
    confirm.add_done_callback(lambda _: came.append(0))

    def interrupted(*given: Any, **named: Any) -> asyncio.Handle:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(asyncio.get_running_loop(), "call_soon", interrupted)
    with pytest.raises(KeyboardInterrupt):
        confirm.set_result(1)
    confirm.add_done_callback(lambda _: came.append(1))
    for _ in range(3):
        await asyncio.sleep(0)
    assert came == [0, 1]


async def test_an_interrupt_while_callbacks_are_scheduled_loses_none(
    aio_channel: aio.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    await aio_channel.confirm_select()
    loop = asyncio.get_running_loop()
    call_soon = loop.call_soon
    for is_late in (False, True):
        came: list[int] = []
        confirm = aio_channel.basic_publish("", "q", b"x")
        for place in range(3):
            confirm.add_done_callback(lambda _, place=place, came=came: came.append(place))

        def interrupted(*given: Any, is_late: bool = is_late, **named: Any) -> asyncio.Handle:
            if given[0] is not _core.wake:
                return call_soon(*given, **named)
            monkeypatch.undo()
            if is_late:
                call_soon(*given, **named)
            raise ZeroDivisionError  # as a signal handler may, behind which the loop goes on

        confirm.set_result(1)
        monkeypatch.setattr(loop, "call_soon", interrupted)
        for _ in range(9):
            await asyncio.sleep(0)
        assert came == [0, 1, 2]


async def test_callbacks_are_taken_back_and_their_errors_reported(aio_channel: aio.Channel) -> None:
    await aio_channel.confirm_select()
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    came: list[str] = []
    confirm = aio_channel.basic_publish("", "q", b"x", PERSISTENT)

    def twice(_: object) -> None:
        came.append("twice")

    def raises(_: object) -> None:
        raise ValueError("a callback's")

    confirm.add_done_callback(raises)
    confirm.add_done_callback(twice)
    confirm.add_done_callback(lambda _: came.append("last"))
    confirm.add_done_callback(twice)
    assert confirm.remove_done_callback(twice) == 2
    assert confirm.remove_done_callback(twice) == 0
    with pytest.raises(asyncio.InvalidStateError):
        confirm.result()
    with pytest.raises(asyncio.InvalidStateError):
        confirm.exception()
    assert await confirm == 1
    with pytest.raises(asyncio.InvalidStateError):
        confirm.set_result(2)
    assert not confirm.cancel()
    confirm.add_done_callback(lambda _: came.append("late"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert came == ["last", "late"]
    assert [str(context["exception"]) for context in told] == ["a callback's"]


def test_an_interrupt_in_a_callback_loses_no_other_confirm(path: Path) -> None:
    loop = asyncio.new_event_loop()

    async def begin() -> tuple[aio.Store, aio.Channel, list[aio.Confirm]]:
        store = await aio.open(path, commit_delay_us=LATE)
        channel = await store.channel()
        await channel.queue_declare("q", durable=True)
        await channel.confirm_select()
        confirms = [channel.basic_publish("", "q", b"x", PERSISTENT) for _ in range(20)]
        return store, channel, confirms

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    async def end(store: aio.Store, waiting: Awaitable[list[int]]) -> list[int]:
        numbers = await waiting
        await store.close()
        return numbers

    try:
        store, _, confirms = loop.run_until_complete(begin())
        confirms[4].add_done_callback(interrupt)  # while the loop rests
        waiting = asyncio.gather(*confirms)
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(waiting)
        numbers = loop.run_until_complete(end(store, waiting))
        assert sorted(numbers) == list(range(1, 21))
    finally:
        loop.close()


async def test_a_channel_of_another_loop_publishes_nothing(
    aio_store: aio.Store, aio_channel: aio.Channel
) -> None:
    async def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            await aio_channel.basic_publish("", "q", b"x")
        publish = aio_channel.basic_publish("", "q", b"x")
        with pytest.raises(RuntimeError, match="another event loop"):
            asyncio.gather(publish)
        publish.close()

    await asyncio.to_thread(asyncio.run, elsewhere())
    assert (await aio_store.queue_status("q"))["messages_ready"] == 0


@pytest.mark.options(commit_delay_us=1_000_000)
async def test_confirms_that_overtake_are_forgotten_before_older_ones(
    aio_channel: aio.Channel,
) -> None:
    await aio_channel.confirm_select()
    held = asyncio.gather(aio_channel.basic_publish("", "q", b"x", PERSISTENT))
    await asyncio.sleep(0)
    confirms = aio_channel._events.confirms
    assert confirms is not None
    numbers = await asyncio.gather(*(aio_channel.basic_publish("", "q", b"y") for _ in range(2000)))
    assert numbers == list(range(2, 2002))
    assert len(confirms) == (0 if held.done() else 1)
    assert await held == [1]
    assert len(confirms) == 0
    assert await aio_channel.wait_for_confirms(timeout=30)

"""Outcome listeners: each publish once, with what its publisher gave along, in both faces."""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow
import pytest

import pyqstore
from pyqstore import Outcome, aio

from ..interrupts import interrupted
from ..support import PERSISTENT

FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}
Work = Callable[["Face"], Awaitable[None]]
Run = Callable[..., "Face"]


async def waited(result: Any) -> Any:
    """What a verb of either face returns."""
    return await result if inspect.isawaitable(result) else result


class Face:
    """A channel of either face in confirm mode, whose verbs are awaited where they must be."""

    def __init__(self, store: Any, connection: Any, channel: Any) -> None:
        self.store, self.connection, self.channel = store, connection, channel
        self.is_aio = isinstance(store, aio.Store)
        self.heard: list[Outcome] = []
        self.background: list[asyncio.Future[Any]] = []

    async def do(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return await waited(call(*arguments, **named))

    async def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        return await self.do(getattr(self.channel, name), *arguments, **named)

    async def publish(self, key: str, correlation: object = None, **named: Any) -> None:
        """And wait for the confirm, in asyncio."""
        with suppress(pyqstore.PublishRefused, pyqstore.MessageReturned):
            await self.call(  # asyncio tells who awaits, too
                "basic_publish", "", key, b"x", PERSISTENT, correlation=correlation, **named
            )

    async def begin(self, key: str, correlation: object = None, **named: Any) -> None:
        """Publish, and wait for no confirm."""
        number = self.channel.next_publish_number
        made = self.channel.basic_publish(
            "", key, b"x", PERSISTENT, correlation=correlation, **named
        )
        if self.is_aio:
            self.background.append(asyncio.gather(made, return_exceptions=True))
            while self.channel.next_publish_number == number:
                await asyncio.sleep(0)

    def deaf(self) -> Any:
        """No listener is called meanwhile but by what ends the channel."""
        if self.is_aio:
            return patch.object(self.channel._events, "look", lambda: None)
        return nullcontext()  # a synchronous one takes its events when it is asked to

    async def settle(self) -> None:
        try:
            await self.call("wait_for_confirms", 20)
        except pyqstore.MessageReturned:
            await self.call("wait_for_confirms", 20)


@pytest.fixture(params=["sync", "aio"])
def run(request: pytest.FixtureRequest, path: Path) -> Run:
    """Runs a coroutine function of a Face."""

    async def with_channel(work: Work, store: Any, is_listening: bool) -> Face:
        connection = await waited(store.connection())
        channel = await waited(connection.channel())
        face = Face(store, connection, channel)
        for queue, arguments in (("q", {}), ("full", FULL)):
            await face.call("queue_declare", queue, durable=True, arguments=arguments)
        if is_listening:
            await face.call("confirm_select")
            channel.add_outcome_listener(face.heard.append)
        await work(face)
        await face.do(channel.close)
        await face.do(connection.close)
        return face

    def run_work(work: Work, *, is_listening: bool = True, **options: Any) -> Face:
        async def asynchronous() -> Face:
            async with aio.open(path, **options) as store:
                return await with_channel(work, store, is_listening)

        if request.param == "aio":
            return asyncio.run(asynchronous())
        with pyqstore.open(path, **options) as store:
            return asyncio.run(with_channel(work, store, is_listening))

    return run_work


def test_each_publish_is_told_once_with_its_correlation_and_why(run: Run) -> None:
    given = object()

    async def work(face: Face) -> None:
        await face.publish("q", given)
        await face.publish("full", ("first",))
        await face.settle()
        await face.publish("full", ("second",))
        await face.publish("nowhere", "lost", mandatory=True)
        await face.publish("nowhere", "dropped")
        await face.publish("q")
        await face.settle()

    assert [tuple(each) for each in run(work).heard] == [
        (1, given, True, None, None),
        (2, ("first",), True, None, None),
        (3, ("second",), False, "full", "full"),
        (4, "lost", False, "returned", None),
        (5, "dropped", True, None, None),
        (6, None, True, None, None),
    ]


def test_a_thousand_publishes_are_told_in_order(run: Run) -> None:
    async def work(face: Face) -> None:
        await asyncio.gather(*(face.publish("q", number) for number in range(1000)))
        await face.settle()

    assert [(each.number, each.correlation, each.confirmed) for each in run(work).heard] == [
        (number + 1, number, True) for number in range(1000)
    ]


def test_what_needs_no_disk_overtakes_and_all_are_told_once(run: Run) -> None:
    async def work(face: Face) -> None:
        await face.call("queue_declare", "transient")
        for number in range(1, 1001):
            await face.begin("transient" if number % 3 else "q", number)
        await face.settle()

    heard = run(work, commit_delay_us=10_000).heard
    assert all(each.confirmed and each.correlation == each.number for each in heard)
    assert sorted(each.number for each in heard) == list(range(1, 1001))


def test_batches_have_no_outcomes(run: Run) -> None:
    async def work(face: Face) -> None:
        rows = pyarrow.table({"body": [b"1", b"2"]})
        receipt = await face.call("publish_batch", rows, routing_key="q")
        await face.publish("q", "behind")
        await face.settle()
        assert receipt.count == 2

    (outcome,) = run(work).heard
    assert (outcome.number, outcome.correlation) == (3, "behind")


def test_nothing_is_told_of_transactions_and_outside_confirm_mode(run: Run) -> None:
    async def work(face: Face) -> None:
        face.channel.add_outcome_listener(face.heard.append)
        await face.publish("q", "before")
        await face.call("tx_select")
        await face.publish("q", "in it")
        await face.call("tx_commit")

    assert run(work, is_listening=False).heard == []


def test_a_publish_that_raises_is_not_told(run: Run) -> None:
    async def work(face: Face) -> None:
        with pytest.raises(TypeError):
            await face.call("basic_publish", "", "q", 1, correlation="body")
        with pytest.raises(ValueError, match="delay"):
            await face.call("basic_publish", "", "q", b"", delay=-1, correlation="delay")
        await face.publish("q", "kept")
        await face.settle()
        with pytest.raises(pyqstore.NotFound):
            await face.call("basic_publish", "missing", "q", b"", correlation="exchange")

    assert [each.correlation for each in run(work).heard] == ["kept"]


def test_a_listener_hears_of_later_publishes(run: Run) -> None:
    late: list[object] = []

    async def work(face: Face) -> None:
        await face.begin("q", "before")
        face.channel.add_outcome_listener(lambda outcome: late.append(outcome.correlation))
        await face.begin("q", "behind")
        await face.settle()

    assert [each.correlation for each in run(work, commit_delay_us=10_000).heard] == [
        "before",
        "behind",
    ]
    assert late == ["behind"]


def test_a_listener_must_be_callable(run: Run) -> None:
    async def work(face: Face) -> None:
        with pytest.raises(TypeError, match="callback must be callable"):
            face.channel.add_outcome_listener(1)

    run(work)


async def _close_channel(face: Face) -> None:
    await face.call("close")


async def _close_connection(face: Face) -> None:
    await face.do(face.connection.close)


async def _close_store(face: Face) -> None:
    await face.do(face.store.close)


async def _end_by_an_error(face: Face) -> None:
    with pytest.raises(pyqstore.NotFound):
        await face.call("queue_declare", "missing", passive=True)
    await face.call("close")


async def _end_the_connection_by_an_error(face: Face) -> None:
    other = await face.do(face.connection.channel)
    with pytest.raises(pyqstore.Error):
        await face.do(other.exchange_declare, "e", "no such type")
    await face.do(other.close)
    await face.call("close")


@pytest.mark.parametrize(
    "close",
    [
        _close_channel,
        _close_connection,
        _close_store,
        _end_by_an_error,
        _end_the_connection_by_an_error,
    ],
)
@pytest.mark.parametrize("raises", [False, True])
def test_what_waits_when_the_channel_ends_is_told_then(run: Run, close: Work, raises: bool) -> None:
    others: list[object] = []
    reported: list[object] = []

    def listen(outcome: Outcome) -> None:
        others.append(outcome.correlation)
        if raises:
            raise KeyError(outcome.correlation)

    async def work(face: Face) -> None:
        if face.is_aio:
            asyncio.get_running_loop().set_exception_handler(
                lambda _, context: reported.append(context["exception"])
            )
        face.channel.add_outcome_listener(listen)
        with face.deaf():
            await face.begin("q", "first")
            await face.begin("nowhere", "lost", mandatory=True)
            await face.begin("q", "second")
            try:
                await close(face)
            except KeyError as error:
                assert raises
                assert not face.is_aio
                reported.append(error)
        await face.do(face.channel.close)
        await asyncio.gather(*face.background)
        assert [each.correlation for each in face.heard] == ["first", "lost", "second"]

    face = run(work)
    assert sorted(tuple(each)[:4] for each in face.heard) == [
        (1, "first", False, "closed"),
        (2, "lost", False, "returned"),
        (3, "second", False, "closed"),
    ]
    assert others == ["first", "lost", "second"]
    assert len(reported) == (0 if not raises else 3 if face.is_aio else 1)


@pytest.mark.filterwarnings("ignore:unclosed channel:ResourceWarning")
def test_a_channel_that_is_forgotten_tells(run: Run) -> None:
    heard: list[object] = []

    async def work(face: Face) -> None:
        channel = await face.do(face.store.channel)
        await face.do(channel.confirm_select)
        channel.add_outcome_listener(lambda outcome: heard.append(outcome.correlation))
        other = Face(face.store, face.connection, channel)
        with other.deaf():
            await other.begin("q", "c")
            for each in other.background:
                each.cancel()
        del other, channel
        await asyncio.sleep(0)
        gc.collect()
        while not heard:
            await asyncio.sleep(0)

    run(work)
    assert heard == ["c"]


async def test_a_cancelled_publish_is_told_once(path: Path) -> None:
    heard: list[tuple[int, object, bool]] = []

    async with (
        aio.open(path, commit_delay_us=10_000) as store,
        await store.channel() as channel,
    ):
        await channel.queue_declare("q", durable=True)
        await channel.confirm_select()
        channel.add_outcome_listener(lambda outcome: heard.append(tuple(outcome)[:3]))
        for correlation in range(30):
            task = asyncio.ensure_future(
                asyncio.wait_for(
                    channel.basic_publish("", "q", b"x", PERSISTENT, correlation=correlation),
                    None,
                )
            )
            for _ in range(correlation % 4 + 1):
                await asyncio.sleep(0)
            task.cancel()
        await channel.basic_publish("", "q", b"x", PERSISTENT, correlation=30)
        last = channel.next_publish_number - 1
        assert [number for number, *_ in heard] == list(range(1, last + 1))
    correlations = [correlation for _, correlation, _ in heard]
    assert len(set(correlations)) == len(correlations)
    assert all(is_confirmed for *_, is_confirmed in heard)


async def test_a_publish_that_a_thread_makes_while_the_channel_ends_is_told_once(
    path: Path,
) -> None:
    heard: list[object] = []

    async with aio.open(path) as store:
        channel = await store.channel()
        await channel.queue_declare("q", durable=True)
        await channel.confirm_select()
        channel.add_outcome_listener(lambda outcome: heard.append(outcome.correlation))
        begun, go_on = asyncio.Event(), threading.Event()
        loop, here = asyncio.get_running_loop(), threading.get_ident()
        publish = channel._twin.basic_publish

        def slow(*arguments: Any, **named: Any) -> int:
            if threading.get_ident() == here:
                raise BlockingIOError
            loop.call_soon_threadsafe(begun.set)
            go_on.wait()
            return publish(*arguments, **named)

        channel._twin.basic_publish = slow  # type: ignore[method-assign]
        awaited = asyncio.gather(
            channel.basic_publish("", "q", b"x", PERSISTENT, correlation="c"),
            return_exceptions=True,
        )
        await begun.wait()
        assert heard == []
        closing = asyncio.ensure_future(channel.close())
        await asyncio.sleep(0)
        go_on.set()
        await closing
        (error,) = await awaited
        assert isinstance(error, pyqstore.ChannelClosed)
    assert heard == ["c"]


def test_a_store_that_fails_tells_so(path: Path, tmp_path: Path) -> None:
    heard: list[Outcome] = []
    store = pyqstore.open(path)
    channel = store.channel()
    channel.queue_declare("q", durable=True)
    channel.confirm_select()
    channel.add_outcome_listener(heard.append)
    path.rename(tmp_path / "moved")
    channel.basic_publish("", "q", b"x", PERSISTENT, correlation="c")
    assert not channel.wait_for_confirms(20)
    assert [tuple(each) for each in heard] == [(1, "c", False, "failed", None)]
    with pytest.raises(pyqstore.Error):
        store.close()
    assert len(heard) == 1


class _Correlation:
    """Something to hold weakly."""


@pytest.mark.parametrize("is_listening", [False, True])
def test_no_correlation_is_kept_that_nobody_is_to_be_told_of(run: Run, is_listening: bool) -> None:
    kept: list[weakref.ref[_Correlation]] = []

    async def publish(face: Face) -> None:
        correlation = _Correlation()
        kept.append(weakref.ref(correlation))
        await face.publish("q", correlation)
        await face.settle()

    async def work(face: Face) -> None:
        if not is_listening:
            await face.call("confirm_select")
        await publish(face)
        face.heard.clear()
        assert kept[0]() is None

    run(work, is_listening=is_listening)


def test_a_listener_may_use_the_channel(run: Run) -> None:
    """And each publish is told once, to all."""
    heard: list[object] = []

    async def work(face: Face) -> None:
        def publish_again(outcome: Outcome) -> None:
            if face.is_aio or not isinstance(outcome.correlation, int):
                return
            if outcome.correlation < 5:
                face.channel.basic_publish("", "q", b"", correlation=outcome.correlation + 1)
            face.channel.process_events()
            if outcome.correlation == 5:
                face.channel.close()

        face.channel.add_outcome_listener(publish_again)
        face.channel.add_outcome_listener(lambda outcome: heard.append(outcome.correlation))
        await face.begin("q", "a")
        await face.begin("q", 1)
        await face.begin("q", "b")
        if face.is_aio:
            await face.settle()
        else:
            while not face.channel.closed:
                face.channel.process_events(20)
        assert heard == [each.correlation for each in face.heard]

    face = run(work)
    assert len(set(heard)) == len(heard)
    assert set(heard) == {"a", "b", 1} | (set() if face.is_aio else {2, 3, 4, 5})


def test_what_a_listener_raises_keeps_no_other_from_being_told(run: Run) -> None:
    reported: list[BaseException] = []

    async def work(face: Face) -> None:
        def listen(outcome: Outcome) -> None:
            raise KeyError(outcome.correlation)

        if face.is_aio:
            asyncio.get_running_loop().set_exception_handler(
                lambda _, context: reported.append(context["exception"])
            )
        face.channel.add_outcome_listener(listen)
        face.channel.add_outcome_listener(face.heard.append)
        for correlation in range(3):
            await face.begin("q", correlation)
        while len(reported) < 3:
            try:
                await face.settle()
            except KeyError as error:
                reported.append(error)
        await face.settle()

    heard = run(work).heard
    assert [each.correlation for each in heard] == [0, 0, 1, 1, 2, 2]
    assert [error.args for error in reported] == [(0,), (1,), (2,)]


def test_a_child_of_fork_tells_nothing(path: Path) -> None:
    heard: list[Outcome] = []
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.confirm_select()
        channel.add_outcome_listener(heard.append)
        channel.basic_publish("", "q", b"x", PERSISTENT, correlation="c")
        child = os.fork()
        if child == 0:
            channel.close()
            store.close()
            os._exit(len(heard))
        assert os.waitpid(child, 0)[1] == 0
        assert channel.wait_for_confirms(20)
    assert [each.correlation for each in heard] == ["c"]


@pytest.mark.parametrize("verb", ["wait_for_confirms", "close"])
@pytest.mark.parametrize("ends", [False, True])
def test_a_handler_that_raises_leaves_each_outcome_told_once(
    store: pyqstore.Store, verb: str, ends: bool
) -> None:
    """``ends``: the channel is closed right behind it."""
    for step in itertools.count(1):
        heard: list[object] = []
        channel = store.channel()
        channel.queue_declare("q")
        channel.confirm_select()
        for _ in range(2):
            channel.add_outcome_listener(lambda outcome, to=heard: to.append(outcome.correlation))
        for correlation in range(3):
            channel.basic_publish("", "q", b"x", correlation=correlation)
        _, is_interrupted = interrupted(step, getattr(channel, verb))
        if not ends and not channel.closed:
            channel.wait_for_confirms(20)
            assert heard == [0, 0, 1, 1, 2, 2]
        channel.close()
        assert heard == [0, 0, 1, 1, 2, 2]
        if not is_interrupted:
            break


def test_a_handler_that_raises_while_the_store_closes_leaves_each_outcome_told_once(
    path: Path,
) -> None:
    for step in itertools.count(1):
        heard: list[object] = []
        store = pyqstore.open(path)
        channel = store.channel()
        channel.confirm_select()
        channel.add_outcome_listener(lambda outcome, to=heard: to.append(outcome.correlation))
        for correlation in range(3):
            channel.basic_publish("", "nowhere", b"x", correlation=correlation)
        _, is_interrupted = interrupted(step, store.close)
        store.close()
        assert heard == [0, 1, 2]
        if not is_interrupted:
            break

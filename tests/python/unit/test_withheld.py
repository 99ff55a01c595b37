"""Messages that were taken and never reached the caller: a damaged body, or no memory on the way.

Who acknowledges all that was handed out does not mean them: they stay unacknowledged, and are ready
again when the channel closes.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import pyqstore
from pyqstore import aio

from ..support import PERSISTENT

COUNT = 6
BAD = 3

Take = Callable[[pyqstore.Channel], list[bytes]]


def body_of(number: int) -> bytes:
    return b"%d:" % number + b"x" * 20_000


@pytest.fixture
def damaged(path: Path) -> Path:
    """A store with six large messages, of which the fourth is damaged."""
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        for number in range(COUNT):
            channel.basic_publish("", "q", body_of(number), PERSISTENT)
    (file,) = (path / "messages").iterdir()
    contents = bytearray(file.read_bytes())
    contents[contents.index(body_of(BAD)[:10]) + 1000] ^= 1
    file.write_bytes(contents)
    return path


def take_by_get(channel: pyqstore.Channel) -> list[bytes]:
    bodies = []
    for _ in range(COUNT + 1):
        try:
            message = channel.basic_get("q")
        except pyqstore.StoreCorrupt:
            continue
        if message is not None:
            bodies.append(message.body)
    return bodies


def take_by_iterator(channel: pyqstore.Channel) -> list[bytes]:
    bodies: list[bytes] = []
    channel.basic_qos(COUNT - 1)  # the damaged one takes none of this room
    for _ in range(2):  # what raises ends an iteration
        try:
            bodies.extend(message.body for message in channel.consume("q", inactivity_timeout=1))
        except pyqstore.StoreCorrupt:
            continue
    return bodies


def take_by_callback(channel: pyqstore.Channel) -> list[bytes]:
    bodies: list[bytes] = []
    channel.basic_consume("q", lambda message: bodies.append(message.body))
    for _ in range(2):
        try:
            channel.process_events(0.2)
        except pyqstore.StoreCorrupt:
            continue
    return bodies


def take_by_batch(channel: pyqstore.Channel) -> list[bytes]:
    bodies = []
    for _ in range(3):
        try:
            bodies += channel.get_batch("q")["body"].to_pylist()
        except pyqstore.StoreCorrupt:
            continue
    return bodies


WAYS = [take_by_get, take_by_iterator, take_by_callback, take_by_batch]


@pytest.mark.parametrize("take", WAYS)
@pytest.mark.parametrize("settle", ["ack", "nack", "tx"])
def test_multiple_ack_settled_a_message_that_raised(damaged: Path, take: Take, settle: str) -> None:
    with pyqstore.open(damaged) as store:
        with store.channel() as channel:
            assert sorted(take(channel)) == [body_of(n) for n in range(COUNT) if n != BAD]
            if settle == "ack":
                channel.basic_ack(0, multiple=True)
            elif settle == "nack":
                channel.basic_nack(0, multiple=True, requeue=False)
            else:
                channel.tx_select()
                channel.basic_ack(0, multiple=True)
                channel.tx_commit()
            status = store.queue_status("q")
            assert (status["messages_ready"], status["messages_unacked"]) == (0, 1)
        status = store.queue_status("q")
        assert (status["messages_ready"], status["messages_unacked"]) == (1, 0)
    with pyqstore.open(damaged) as store, store.channel() as channel:
        with pytest.raises(pyqstore.StoreCorrupt):
            channel.basic_get("q")
        assert channel.basic_get("q") is None


async def test_aio_multiple_ack_settled_a_message_that_raised(damaged: Path) -> None:
    async with await aio.open(damaged) as store, await store.channel() as channel:
        bodies = []
        for _ in range(COUNT + 1):
            try:
                message = await channel.basic_get("q")
            except pyqstore.StoreCorrupt:
                continue
            if message is not None:
                bodies.append(message.body)
        assert bodies == [body_of(n) for n in range(COUNT) if n != BAD]
        await channel.basic_ack(0, multiple=True)
        assert (await store.queue_status("q"))["messages_unacked"] == 1
        await channel.basic_recover()
        assert (await store.queue_status("q"))["messages_ready"] == 1


async def test_aio_consumer_acks_around_a_message_that_raised(damaged: Path) -> None:
    async with await aio.open(damaged) as store, await store.channel() as channel:
        bodies: list[bytes] = []
        while len(bodies) < COUNT - 1:  # what raises ends an iteration
            try:
                async with channel.consume("q", inactivity_timeout=60) as messages:
                    async for message in messages:
                        bodies.append(message.body)
                        await channel.basic_ack(message.delivery_tag, multiple=True)
                        if len(bodies) == COUNT - 1:
                            break
            except pyqstore.StoreCorrupt:
                continue
        assert sorted(bodies) == [body_of(n) for n in range(COUNT) if n != BAD]
        status = await store.queue_status("q")
        assert (status["messages_ready"], status["messages_unacked"]) == (0, 1)


# Of memory that runs out an interpreter may itself take harm, so it is a process of its own.  What
# an interpreter does only when code runs for the first times has been done before.
FORGETFUL = """
import sys
import _testcapi
import pyqstore

PERSISTENT = pyqstore.Properties(delivery_mode=2)
WARM, LASTED = 20, 3


def take(channel, way, tag):
    if way == "get":
        return channel.basic_get("q")
    if way == "event":
        return channel.next_delivery(tag, 0.0)
    return channel._take_events(8, 16) if way == "events" else channel.get_batch("q")


def handed_out(way, taken):
    if way == "batch":
        return sum(len(batch) for batch in taken)
    if way == "events":
        return sum(event[0] == 8 for events in taken for event in events[0])
    return len(taken)


def fails(store, way, nth):
    taken, failed = [], False
    with store.channel() as channel:
        for number in range(3):
            channel.basic_publish("", "q", b"%d" % number * 600, PERSISTENT)
        tag = channel.basic_consume("q") if way in {"event", "events"} else None
        channel._set_no_wait(way == "events")
        while not failed and len(taken) < 4:
            if nth is not None:
                _testcapi.set_nomemory(nth, nth + 1)
            try:
                what = take(channel, way, tag)
            except MemoryError:
                failed = True
            finally:
                _testcapi.remove_mem_hooks()
            if not failed:
                taken.append(what)
        channel._set_no_wait(False)
        if way == "event":
            channel.basic_cancel(tag)
        channel.basic_ack(0, multiple=True)
    count = handed_out(way, [what for what in taken if what is not None])
    ready = store.queue_status("q")["messages_ready"]
    assert ready == 3 - count, f"allocation {nth}: {ready} ready, {count} handed out"
    with store.channel() as channel:
        channel.queue_purge("q")
    return failed


path, way = sys.argv[1:]
with pyqstore.open(path) as store:
    with store.channel() as channel:
        channel.queue_declare("q", durable=True)
    for _ in range(WARM):
        assert not fails(store, way, None)
    failures = lasted = nth = 0
    while lasted < LASTED:
        failed = fails(store, way, nth)
        failures += failed
        lasted = 0 if failed else lasted + 1
        nth += 1
    assert failures > 2, failures
"""


@pytest.mark.parametrize("way", ["get", "event", "batch", "events"])
def test_memory_that_ran_out_in_python_cost_messages(path: Path, way: str) -> None:
    """Each allocation of the interpreter's fails once on the way out of the engine."""
    pytest.importorskip("_testcapi")  # not every build of Python has it
    command = [sys.executable, "-P", "-c", FORGETFUL, str(path), way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")

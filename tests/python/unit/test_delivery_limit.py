"""Queues with x-delivery-limit: a message that ends its process goes, however it was delivered."""

import signal
import time
from pathlib import Path

import pytest

import pyqstore

from ..support import declare, get, publish, run_python

LIMIT = 3

# Prints how often the first message was delivered before, and ends with it.
WORKER = """
import asyncio, os, signal, sys
import pyqstore
from pyqstore import aio

path, way, end = sys.argv[1:]

def finish(count):
    print(count, flush=True)
    if end == "exit":
        os._exit(1)
    os.kill(os.getpid(), signal.SIGKILL)

async def take():
    async with await aio.open(path) as store:
        channel = await store.channel()
        message = await channel.basic_get("q")
        finish(None if message is None else message.delivery_count)

if way == "aio":
    asyncio.run(take())
store = pyqstore.open(path)
channel = store.channel()
if way == "get":
    message = channel.basic_get("q")
elif way == "consume":
    message = next(channel.consume("q", inactivity_timeout=0), None)
elif way == "callback":
    channel.basic_consume("q", lambda message: finish(message.delivery_count))
    channel.process_events(0)
    message = None
elif way == "batch":
    counts = channel.get_batch("q")["delivery_count"].to_pylist()
    finish(counts[0] if counts else None)
finish(None if message is None else message.delivery_count)
"""


@pytest.mark.parametrize(
    ("way", "end"),
    [
        ("get", "exit"),
        ("get", "kill"),
        ("consume", "kill"),
        ("callback", "exit"),
        ("batch", "kill"),
        ("aio", "exit"),
    ],
)
def test_message_that_ended_its_process_was_delivered_for_ever(
    path: Path, way: str, end: str
) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        declare(channel, "dead")
        declare(
            channel,
            "q",
            delivery_limit=LIMIT,
            dead_letter_exchange="",
            dead_letter_routing_key="dead",
        )
        publish(channel, "q", b"poison")
    counts = []
    for _ in range(LIMIT + 2):
        ended = run_python(WORKER, path, way, end)
        assert ended.returncode == (1 if end == "exit" else -signal.SIGKILL), ended.stderr
        counts.append(ended.stdout.strip())
    assert counts == ["0", "1", "2", "3", "None"]
    with pyqstore.open(path) as store, store.channel() as channel:
        # The last one ended before this was durable: the open does it, whoever asks or not.
        deadline = time.monotonic() + 60
        while (message := channel.basic_get("dead")) is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert message.body == b"poison"
        deaths = message.properties.headers["x-death"]
        assert [death["reason"] for death in deaths] == ["delivery_limit"]
        assert store.queue_status("q")["messages_ready"] == 0


def test_what_was_not_delivered_counted_after_a_kill(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        declare(channel, "q", delivery_limit=LIMIT)
        publish(channel, "q", b"first", b"second")
    run_python(WORKER, path, "get", "kill")
    with pyqstore.open(path) as store, store.channel() as channel:
        assert [get(channel, "q").delivery_count for _ in range(2)] == [1, 0]
    with pyqstore.open(path) as store, store.channel() as channel:  # after an orderly close
        assert [get(channel, "q").delivery_count for _ in range(2)] == [2, 1]


def test_queue_without_a_limit_writes_no_deliveries(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    declare(channel, "q")
    publish(channel, "q", b"message")
    store.sync()
    before = store.stats()["bytes_journalled"]
    get(channel, "q")
    assert store.stats()["bytes_journalled"] == before

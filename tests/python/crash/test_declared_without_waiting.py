"""Declarations with ``nowait``, then SIGKILL: what a later call covers is there.

The worker says what it did by the return of its last call, and kills itself.
"""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pyqstore
from pyqstore import aio

from ..support import get

pytestmark = pytest.mark.crash

COUNT = 300

WORKER = """
import os, signal, sys
import pyqstore

covered_by, path, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = pyqstore.open(path)
channel = store.channel()
channel.exchange_declare("x", "topic", durable=True, nowait=True)
channel.exchange_declare("gone", "fanout", durable=True, nowait=True)
channel.exchange_bind("gone", "x", "never", nowait=True)
channel.exchange_unbind("gone", "x", "never", nowait=True)
channel.exchange_delete("gone", nowait=True)
for number in range(count):
    assert channel.queue_declare(f"q{number}", durable=True, nowait=True).queue == f"q{number}"
    channel.queue_bind(f"q{number}", "x", f"k{number}", nowait=True)
channel.queue_unbind("q0", "x", "k0", nowait=True)
assert channel.queue_delete("q1", nowait=True) == 0
persistent = pyqstore.Properties(delivery_mode=2)
if covered_by == "confirm":
    channel.confirm_select()
    channel.basic_publish("x", f"k{count - 1}", b"body", persistent)
    assert channel.wait_for_confirms()
elif covered_by == "transaction":
    with channel.transaction() as tx:
        tx.publish("x", f"k{count - 1}", b"body", persistent)
elif covered_by == "declare":
    channel.queue_declare("last", durable=True)
else:
    store.sync()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("covered_by", ["confirm", "transaction", "declare", "sync"])
def test_what_a_later_call_covers_outlives_a_kill(tmp_path: Path, covered_by: str) -> None:
    path = tmp_path / "store"
    done = subprocess.run(
        [sys.executable, "-c", WORKER, covered_by, str(path), str(COUNT)], check=False
    )
    assert done.returncode == -signal.SIGKILL
    with pyqstore.open(path) as store, store.channel() as channel:
        names = set(store.queues()) - {"last"}
        assert names == {f"q{number}" for number in range(COUNT)} - {"q1"}
        bindings = {(b.destination, b.routing_key) for b in store.bindings() if b.source == "x"}
        assert bindings == {(f"q{number}", f"k{number}") for number in range(2, COUNT)}
        assert "gone" not in store.exchanges()
        if covered_by in ("confirm", "transaction"):
            message = get(channel, f"q{COUNT - 1}")
            assert message.body == b"body"


def test_errors_come_at_once(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "store") as store:
        for do in (
            lambda c: c.queue_declare("q", durable=True, auto_delete=True, nowait=True),
            lambda c: c.queue_bind("q", "none", nowait=True),
            lambda c: c.exchange_bind("none", "amq.topic", nowait=True),
            lambda c: c.exchange_declare("amq.topic", "direct", nowait=True),
            lambda c: c.exchange_delete("amq.topic", nowait=True),
            lambda c: c.queue_delete("q", if_empty=True, nowait=True),
        ):
            with store.channel() as channel:
                channel.queue_declare("q", durable=True)
                channel.basic_publish("", "q", b"not empty")
                with pytest.raises(pyqstore.ChannelError):
                    do(channel)
                assert channel.closed


def test_an_event_loop_declares_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "store"

    async def declare() -> None:
        async with aio.open(path) as store, await store.channel() as channel:
            await channel.exchange_declare("x", "topic", durable=True, nowait=True)
            await channel.exchange_declare("y", "topic", durable=True, nowait=True)
            answers = await asyncio.gather(
                *(channel.queue_declare(f"q{n}", durable=True, nowait=True) for n in range(20))
            )
            assert [answer.queue for answer in answers] == [f"q{n}" for n in range(20)]
            for n in range(20):
                await channel.queue_bind(f"q{n}", "x", f"k{n}", nowait=True)
            await channel.exchange_bind("y", "x", "#", nowait=True)
            await channel.exchange_unbind("y", "x", "#", nowait=True)
            await channel.exchange_delete("y", nowait=True)
            await channel.queue_unbind("q0", "x", "k0", nowait=True)
            assert await channel.queue_delete("q1", nowait=True) == 0
            await store.sync()

    asyncio.run(declare())
    with pyqstore.open(path) as store:
        assert len(store.queues()) == 19
        assert len([b for b in store.bindings() if b.source == "x"]) == 18

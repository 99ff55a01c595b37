"""Messages that are delivered later: ``delay`` of publish and nack, the column ``due``."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore
from pyqstore import Properties, aio

from ..support import publish_numbers, run_python

PERSISTENT = Properties(delivery_mode=2)
LONG = 3600


def delayed(store: pyqstore.Store, queue: str = "q") -> int:
    return int(store.queue_status(queue)["messages_delayed"])


def get(channel: pyqstore.Channel, queue: str = "q", timeout: float = 60) -> pyqstore.Message:
    deadline = time.monotonic() + timeout
    while (message := channel.basic_get(queue)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return message


@pytest.fixture
def channel(store: pyqstore.Store) -> pyqstore.Channel:
    channel = store.channel()
    channel.queue_declare("q", durable=True)
    return channel


def test_a_delayed_message_holds_up_nobody_and_comes_when_it_is_due(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.basic_publish("", "q", b"never", PERSISTENT, delay=LONG)
    channel.basic_publish("", "q", b"now", PERSISTENT)
    assert get(channel).body == b"now"
    assert channel.basic_get("q") is None
    began = time.monotonic()
    channel.basic_publish("", "q", b"later", PERSISTENT, delay=0.3)
    assert get(channel).body == b"later"
    assert time.monotonic() - began >= 0.3
    status = store.queue_status("q")
    assert (status["messages_ready"], status["messages_unacked"]) == (0, 2)
    assert status["messages_delayed"] == 1


def test_a_waiting_consumer_is_woken_when_a_message_is_due(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.basic_publish("", "q", b"a", delay=timedelta(milliseconds=200))
    for message in channel.consume("q", inactivity_timeout=60):
        assert message.body == b"a"
        message.nack(delay=0.2)
        break
    again = channel.get_batch("q", timeout=60)
    assert again["body"].to_pylist() == [b"a"]
    assert again["delivery_count"].to_pylist() == [1]


def test_nack_with_delay_of_all_up_to_a_tag(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    publish_numbers(channel, "q", 100, properties=PERSISTENT)
    for _ in range(50):
        message = channel.basic_get("q")
    assert message is not None
    channel.basic_nack(message.delivery_tag, multiple=True, delay=LONG)
    assert delayed(store) == 50
    message = channel.basic_get("q")
    assert message is not None
    assert message.body == b"50"
    channel.basic_nack(message.delivery_tag, delay=timedelta(hours=1))
    assert delayed(store) == 51
    with pytest.raises(pyqstore.PreconditionFailed, match="unknown delivery tag"):
        channel.basic_nack(message.delivery_tag, delay=1)


def test_nack_all_with_delay_leaves_what_came_and_was_not_handed_out(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    publish_numbers(channel, "q", 10)
    tag = channel.basic_consume("q")
    for _ in range(3):
        assert channel.next_delivery(tag) is not None
    channel.basic_nack(0, multiple=True, delay=LONG)
    assert delayed(store) == 3
    message = channel.next_delivery(tag)
    assert message is not None
    assert message.body == b"3"


def test_publish_and_nack_with_delay_take_effect_with_their_transaction(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.basic_publish("", "q", b"a", PERSISTENT)
    message = channel.basic_get("q")
    assert message is not None
    channel.tx_select()
    channel.basic_publish("", "q", b"b", PERSISTENT, delay=LONG)
    message.nack(delay=LONG)
    assert delayed(store) == 0
    channel.tx_rollback()
    channel.basic_publish("", "q", b"b", PERSISTENT, delay=LONG)
    message.nack(delay=LONG)
    channel.tx_commit()
    assert delayed(store) == 2


def test_the_column_due_tells_when_each_row_may_be_delivered(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    later = datetime.now(UTC) + timedelta(days=2)  # in any zone
    dues = [None, later, datetime(1960, 1, 1, tzinfo=UTC), datetime(2000, 1, 1, tzinfo=UTC)]
    for count, unit in enumerate(("s", "ms", "us", "ns"), 1):
        for zone in (None, "UTC", "Europe/Vienna"):
            column = pa.array(dues, pa.timestamp("us", "UTC")).cast(
                pa.timestamp(unit, "UTC"), safe=False
            )
            if zone != "UTC":
                column = column.cast(pa.timestamp(unit, zone))
            batch = pa.record_batch({"body": [b"0", b"1", b"2", b"3"], "due": column})
            channel.publish_batch(batch, routing_key="q")
        assert delayed(store) == 3 * count
    assert channel.get_batch("q")["body"].to_pylist() == [b"0", b"2", b"3"] * 12


def test_a_column_due_that_cannot_be_used_is_refused_with_its_row(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    numbers = pa.record_batch({"body": [b""], "due": pa.array([5], pa.int64())})
    with pytest.raises(ValueError, match=r'column "due".*expected a timestamp'):
        channel.publish_batch(numbers, routing_key="q")
    far = pa.array([0, 2**62], pa.timestamp("s"))
    with pytest.raises(ValueError, match="row 1: due in more than 100 years"):
        channel.publish_batch(pa.record_batch({"body": [b"", b""], "due": far}), routing_key="q")
    assert delayed(store) == 0


@pytest.mark.parametrize("delay", [-1, -0.001, math.nan, math.inf, 1e12, timedelta(days=-1)])
def test_a_delay_that_is_none_is_refused(channel: pyqstore.Channel, delay: float) -> None:
    with pytest.raises(ValueError, match="delay must be 0 to"):
        channel.basic_publish("", "q", b"", delay=delay)
    channel.basic_publish("", "q", b"")
    message = channel.basic_get("q")
    assert message is not None
    with pytest.raises(ValueError, match="delay must be 0 to"):
        message.nack(delay=delay)
    message.ack()


def test_a_delay_of_another_type_or_without_requeue_is_refused(channel: pyqstore.Channel) -> None:
    with pytest.raises(TypeError, match="delay must be seconds or a timedelta, not str"):
        channel.basic_publish("", "q", b"", delay="5")  # type: ignore[arg-type]
    channel.basic_publish("", "q", b"")
    message = channel.basic_get("q")
    assert message is not None
    with pytest.raises(ValueError, match="delay without requeue"):
        message.nack(requeue=False, delay=1)
    with pytest.raises(ValueError, match="delay without requeue"):
        channel.basic_nack(message.delivery_tag, requeue=False, delay=1)
    channel.basic_nack(message.delivery_tag, requeue=False, delay=0)


def test_browse_tells_delayed_messages_from_others(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.basic_publish("", "q", b"a")
    channel.basic_publish("", "q", b"b", delay=LONG)
    channel.basic_publish("", "q", b"c")
    assert get(channel).body == b"a"
    (batch,) = store.browse("q")
    assert batch["body"].to_pylist() == [b"a", b"b", b"c"]
    assert batch["unacked"].to_pylist() == [True, False, False]
    assert batch["delayed"].to_pylist() == [False, True, False]


def test_purge_and_delete_take_delayed_messages_along(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    for _ in range(3):
        channel.basic_publish("", "q", b"", PERSISTENT, delay=LONG)
    assert channel.queue_purge("q") == 3
    assert delayed(store) == 0
    channel.basic_publish("", "q", b"", PERSISTENT, delay=LONG)
    with pytest.raises(pyqstore.PreconditionFailed, match="not empty"):
        channel.queue_delete("q", if_empty=True)
    assert store.channel().queue_delete("q") == 1


def test_a_nack_with_delay_past_the_delivery_limit_dead_letters_at_once(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("dead", durable=True)
    limits = {
        "x-delivery-limit": 1,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
    }
    channel.queue_declare("limited", durable=True, arguments=limits)
    channel.basic_publish("", "limited", b"a", PERSISTENT)
    get(channel, "limited").nack(delay=0.001)
    get(channel, "limited").nack(delay=LONG)
    assert get(channel, "dead").body == b"a"
    assert delayed(store, "limited") == 0


CHILD = """
import os, signal, sys
import pyqstore
from pyqstore import Properties

path, checkpoint = sys.argv[1], sys.argv[2] == "checkpoint"
store = pyqstore.open(path, checkpoint_bytes=0)
channel = store.channel()
channel.queue_declare("q", durable=True)
channel.confirm_select()
persistent = Properties(delivery_mode=2)
channel.basic_publish("", "q", b"hour", persistent, delay=3600)
channel.basic_publish("", "q", b"nacked", persistent)
channel.basic_get("q").nack(delay=3600)
channel.basic_publish("", "q", b"soon", persistent, delay=1)
assert channel.wait_for_confirms(timeout=60)
store.sync()
if checkpoint:
    store.checkpoint()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["journal", "checkpoint"])
def test_a_killed_process_leaves_the_due_times(tmp_path: Path, how: str) -> None:
    path = tmp_path / "store"
    died = subprocess.run([sys.executable, "-c", CHILD, os.fspath(path), how], check=False)
    assert died.returncode == -signal.SIGKILL
    with pyqstore.open(path) as store:
        channel = store.channel()
        assert get(channel).body == b"soon"
        assert channel.basic_get("q") is None
        assert delayed(store) == 2
        (batch,) = store.browse("q")
        assert batch["body"].to_pylist() == [b"hour", b"nacked", b"soon"]
        assert batch["delayed"].to_pylist() == [True, True, False]


async def test_asynchronous_channels_delay(tmp_path: Path) -> None:
    async with await aio.open(tmp_path / "store") as store:
        channel = await store.channel()
        await channel.queue_declare("q", durable=True)
        await channel.confirm_select()
        await channel.basic_publish("", "q", b"never", PERSISTENT, delay=LONG)
        await channel.basic_publish("", "q", b"later", PERSISTENT, delay=0.1)
        async for message in channel.consume("q", inactivity_timeout=60):
            assert message.body == b"later"
            await message.nack(delay=0.1)
            break
        async for message in channel.consume("q", inactivity_timeout=60):
            assert message.body == b"later"
            assert message.delivery_count == 1
            await channel.basic_nack(0, multiple=True, delay=LONG)
            break
        assert (await store.queue_status("q"))["messages_delayed"] == 2
        with pytest.raises(ValueError, match="delay without requeue"):
            await channel.basic_nack(0, multiple=True, requeue=False, delay=1)


def test_a_million_delayed_messages_come_when_they_are_due_and_none_early(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    count = 1_000_000
    now = time.time_ns() // 1000
    dues = [now + 3_000_000 + number * 7919 % 2_000_000 for number in range(count)]
    table = pa.table(
        {
            "body": pa.array(map(str, range(count))),
            "due": pa.array(dues).cast(pa.timestamp("us", "UTC")),
        }
    )
    channel.publish_batch(table, routing_key="q", properties=PERSISTENT).wait(timeout=300)
    seen = bytearray(count)
    total = 0
    while total < count:
        batch = channel.get_batch("q", 100_000, auto_ack=True, timeout=60)
        late = time.time_ns() // 1000
        assert batch.num_rows > 0
        for body in batch["body"].to_pylist():
            number = int(body)
            assert dues[number] <= late + 50_000
            assert not seen[number]
            seen[number] = 1
        total += batch.num_rows
    assert delayed(store) == 0


_SHARED = """
import sys
import pyarrow as pa
import pyqstore

options = {"checkpoint_bytes": 0, "journal_file_bytes": "64KiB", "memory_budget": "256KiB"}
PERSISTENT = pyqstore.Properties(delivery_mode=2)
with pyqstore.open(sys.argv[1], **options) as store, store.channel() as channel:
    channel.exchange_declare("all", "fanout", durable=True)
    for queue in ("flushed", "carried"):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "all")
    due = pa.array([3_000_000_000_000_000] + [None] * 9, pa.timestamp("us", "UTC"))
    for _ in range(6):
        rows = pa.table({"body": [bytes(200)] * 10, "due": due})
        channel.publish_batch(rows, exchange="all", properties=PERSISTENT)
    large = pa.table({"body": [bytes(2000)] * 60})
    channel.publish_batch(large, routing_key="flushed", properties=PERSISTENT)
    store.sync()
    store.set_queue_mode("flushed", "lazy")
    store.queue_status("flushed")
    store.checkpoint()
with pyqstore.open(sys.argv[1], **options) as store:
    status = store.queue_status("carried")
    print(status.messages_ready, status.messages_delayed)
"""


def test_messages_of_a_queue_that_shares_bodies_were_delayed_for_ever_after_a_restart(
    path: Path,
) -> None:
    """Their record was built again without its due times: what memory held before took their
    place.  glibc is told to leave something there."""
    perturbed = os.environ | {"GLIBC_TUNABLES": "glibc.malloc.perturb=165"}
    told = run_python(_SHARED, path, env=perturbed, check=True)
    assert told.stdout == "54 6\n"


def test_a_delayed_nack_of_several_delays_the_one_it_names(store: pyqstore.Store) -> None:
    with store.channel() as channel:
        for queue in ("a", "b"):
            channel.queue_declare(queue, durable=True)
            channel.basic_publish("", queue, queue.encode())
        others = channel.consume("b", inactivity_timeout=0)
        first = next(channel.consume("a"))  # what comes for b meanwhile is buffered
        channel.basic_nack(first.delivery_tag, multiple=True, delay=60)
        assert store.queue_status("a").messages_delayed == 1
        assert store.queue_status("a").messages_ready == 0
        others.close()

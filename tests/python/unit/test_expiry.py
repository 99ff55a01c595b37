"""Messages that expire, wherever they stand in their queue, and queues that do."""

import time
from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore

from ..support import PERSISTENT, bodies, declare, sent, wait_until


def lives(milliseconds: int | str) -> pyqstore.Properties:
    return pyqstore.Properties(delivery_mode=2, expiration=str(milliseconds))


def test_expired_messages_are_not_delivered_nor_counted(channel: pyqstore.Channel) -> None:
    declare(channel, "short", message_ttl=1)
    declare(channel, "long", message_ttl=60_000)
    for queue in ("short", "long"):
        channel.basic_publish("", queue, b"1", PERSISTENT)
    time.sleep(0.01)
    assert channel.queue_declare("short", passive=True).message_count == 0
    assert channel.queue_declare("long", passive=True).message_count == 1
    assert bodies(channel, "short") == []
    assert bodies(channel, "long") == [b"1"]


def test_messages_expire_behind_one_that_does_not(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    channel.basic_publish("", queue, b"stays", PERSISTENT)
    channel.basic_publish("", queue, b"goes", lives(1))
    channel.basic_publish("", queue, b"stays too", lives(60_000))
    channel.basic_publish("", queue, b"goes too", lives(2))
    wait_until(lambda: store.queue_status(queue)["messages_ready"] == 2)
    assert bodies(channel, queue) == [b"stays", b"stays too"]


def test_the_shorter_of_both_times_counts(channel: pyqstore.Channel) -> None:
    declare(channel, "short", message_ttl=1)
    declare(channel, "long", message_ttl=60_000)
    for queue in ("short", "long"):
        channel.basic_publish("", queue, b"1", lives(60_000))
        channel.basic_publish("", queue, b"2", lives(1))
    time.sleep(0.01)
    assert bodies(channel, "short") == []
    assert bodies(channel, "long") == [b"1"]


def test_unacked_messages_expire_when_they_come_back(channel: pyqstore.Channel) -> None:
    declare(channel, "ttl", message_ttl=20)
    message = None
    while message is None:  # one that is not gone before it is taken
        channel.basic_publish("", "ttl", b"1", PERSISTENT)
        message = channel.basic_get("ttl")
    time.sleep(0.03)
    message.nack(requeue=True)
    assert bodies(channel, "ttl") == []


@pytest.mark.parametrize("restart", ["close", "checkpoint", "journal"])
def test_times_outlast_a_restart(path: Path, restart: str) -> None:
    options = {} if restart == "close" else {"checkpoint_bytes": 0}
    with pyqstore.open(path, **options) as store, store.channel() as channel:  # type: ignore[arg-type]
        declare(channel, "ttl", message_ttl=60_000)
        channel.queue_declare("q", durable=True)
        for i in range(300):
            channel.basic_publish("", "ttl", b"%d" % i, lives(1) if i % 3 == 0 else PERSISTENT)
            channel.basic_publish("", "q", b"%d" % i, lives(1) if i % 3 == 0 else PERSISTENT)
        channel.basic_publish("", "q", b"large" + bytes(10_000), lives(1))
        if restart == "checkpoint":
            store.checkpoint()
    time.sleep(0.01)
    with pyqstore.open(path) as store, store.channel() as channel:
        expected = [b"%d" % i for i in range(300) if i % 3 != 0]
        assert bodies(channel, "ttl") == expected
        assert bodies(channel, "q") == expected


def test_paged_messages_expire(path: Path) -> None:
    with pyqstore.open(
        path, memory_budget="2MiB", segment_entries=128, journal_file_bytes="1MiB"
    ) as store:
        channel = store.channel()
        declare(channel, "ttl", message_ttl=1500)
        rows = [b"%05d" % i + bytes(500) for i in range(12_000)]
        channel.publish_batch(pa.record_batch({"body": rows}), "", "ttl")
        channel.queue_declare("q", durable=True)
        for start in range(0, len(rows), 1000):
            channel.publish_batch(
                pa.record_batch(
                    {
                        "body": rows[start : start + 1000],
                        "expiration_ms": [1500 if i % 2 else None for i in range(1000)],
                    }
                ),
                "",
                "q",
            )
        wait_until(lambda: store.queue_status("ttl")["messages_ready"] == 0, 30)
        wait_until(lambda: store.queue_status("q")["messages_ready"] == 6000, 30)
        assert bodies(channel, "q") == rows[::2]


def test_at_once_or_to_a_consumer(store: pyqstore.Store, channel: pyqstore.Channel) -> None:
    declare(channel, "now", message_ttl=0)
    channel.basic_publish("", "now", b"nobody is there", PERSISTENT)
    assert bodies(channel, "now") == []
    channel.basic_consume("now", auto_ack=True, consumer_tag="c")
    message = None
    with store.channel() as publisher:
        while message is None:  # it is there for 20 ms, in which this thread may not run
            publisher.basic_publish("", "now", b"somebody is", PERSISTENT)
            message = channel.next_delivery("c", timeout=0.1)
    assert message.body == b"somebody is"


@pytest.mark.parametrize("expiration", ["", "soon", "-1", "1.5", " 1", "99999999999"])
def test_bad_expiration_is_refused(channel: pyqstore.Channel, queue: str, expiration: str) -> None:
    with pytest.raises(pyqstore.PreconditionFailed, match="invalid expiration"):
        channel.basic_publish("", queue, b"1", sent(expiration=expiration))
    assert channel.closed


def test_missing_exchange_comes_before_a_bad_expiration(channel: pyqstore.Channel) -> None:
    with pytest.raises(pyqstore.NotFound, match="no exchange 'nowhere'"):
        channel.basic_publish("nowhere", "k", b"1", sent(expiration="soon"))


def test_queues_keep_messages_for_up_to_ten_years(path: Path) -> None:
    years = 315_360_000_000
    arguments = {"x-message-ttl": years, "x-expires": years}
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True, arguments=arguments)
        channel.basic_publish("", "q", b"1", pyqstore.Properties(delivery_mode=2))
    with pyqstore.open(path) as store, store.channel() as channel:
        assert bodies(channel, "q") == [b"1"]
        for name in arguments:
            with pytest.raises(pyqstore.PreconditionFailed, match="is more than"):
                store.channel().queue_declare("p", arguments={name: years + 1})


def test_a_batch_that_expires(channel: pyqstore.Channel, queue: str) -> None:
    batch = pa.record_batch({"body": [b"1", b"2", b"3"], "expiration_ms": [1, None, 60_000]})
    channel.publish_batch(batch, "", queue)
    channel.publish_batch(pa.record_batch({"body": [b"4"]}), "", queue, properties=lives(1))
    time.sleep(0.01)
    assert bodies(channel, queue) == [b"2", b"3"]


@pytest.mark.clock
def test_transactions_count_from_the_commit(channel: pyqstore.Channel) -> None:
    declare(channel, "ttl", message_ttl=1000)
    channel.tx_select()
    channel.basic_publish("", "ttl", b"1", PERSISTENT)
    time.sleep(1.1)
    channel.tx_commit()
    assert bodies(channel, "ttl") == [b"1"]


@pytest.mark.clock
def test_an_unused_queue_goes(store: pyqstore.Store, channel: pyqstore.Channel) -> None:
    declare(channel, "idle", expires=1000)
    channel.basic_publish("", "idle", b"1", PERSISTENT)
    for _ in range(12):
        time.sleep(0.1)
        channel.basic_get("idle")
    assert "idle" in store.queues()
    wait_until(lambda: "idle" not in store.queues())


@pytest.mark.clock
def test_a_queue_with_a_consumer_stays(store: pyqstore.Store, channel: pyqstore.Channel) -> None:
    declare(channel, "used", expires=1000)
    channel.basic_consume("used", consumer_tag="c")
    time.sleep(1.1)
    assert "used" in store.queues()
    channel.basic_cancel("c")
    wait_until(lambda: "used" not in store.queues())

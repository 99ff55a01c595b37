"""Queues of limited length: which messages go, which are refused, and what the publisher hears."""

import threading
from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore

from ..support import PERSISTENT, bodies, declare, get, publish


def confirms(channel: pyqstore.Channel) -> dict[int, bool]:
    """Collect what becomes of each publish number."""
    heard: dict[int, bool] = {}
    last = 0

    def acked(number: int, multiple: bool) -> None:
        nonlocal last
        for each in range(last + 1 if multiple else number, number + 1):
            heard.setdefault(each, True)
        last = max(last, number) if multiple else last

    def nacked(number: int, multiple: bool) -> None:
        assert number not in heard
        assert not multiple
        heard[number] = False

    channel.add_confirm_listener(acked, nacked)
    return heard


def test_the_oldest_go(channel: pyqstore.Channel) -> None:
    declare(channel, "few", max_length=3)
    publish(channel, "few", *(b"%d" % i for i in range(10)))
    assert channel.queue_declare("few", passive=True).message_count == 3
    assert bodies(channel, "few") == [b"7", b"8", b"9"]


def test_the_oldest_of_a_batch_go(channel: pyqstore.Channel) -> None:
    declare(channel, "few", max_length=3)
    publish(channel, "few", b"a", b"b")
    channel.publish_batch(pa.record_batch({"body": [b"%d" % i for i in range(1000)]}), "", "few")
    assert bodies(channel, "few") == [b"997", b"998", b"999"]


def test_bytes_of_bodies_are_limited(channel: pyqstore.Channel) -> None:
    declare(channel, "small", max_length_bytes=10)
    publish(channel, "small", b"1234", b"5678", b"9")
    publish(channel, "small", b"abc")
    assert bodies(channel, "small") == [b"5678", b"9", b"abc"]
    publish(channel, "small", b"x", b"too large for it")
    assert bodies(channel, "small") == []


def test_large_bodies_count_by_their_size(channel: pyqstore.Channel) -> None:
    declare(channel, "small", max_length_bytes=25_000)
    for i in range(5):
        publish(channel, "small", b"%d" % i + bytes(9_999))
    assert [body[:1] for body in bodies(channel, "small")] == [b"3", b"4"]


def test_unacked_messages_do_not_count(store: pyqstore.Store, channel: pyqstore.Channel) -> None:
    declare(channel, "few", max_length=2, max_length_bytes=1000)
    publish(channel, "few", b"1", b"2")
    held = [channel.basic_get("few"), channel.basic_get("few")]
    publish(channel, "few", b"3", b"4")
    assert store.queue_status("few")["messages_unacked"] == 2
    for message in held:
        assert message is not None
        message.nack(requeue=True)
    assert bodies(channel, "few") == [b"3", b"4"]


def test_nothing_fits(channel: pyqstore.Channel) -> None:
    declare(channel, "none", max_length=0)
    publish(channel, "none", b"1")
    assert bodies(channel, "none") == []


@pytest.mark.parametrize("restart", ["close", "journal"])
def test_what_was_dropped_stays_away(path: Path, restart: str) -> None:
    options = {} if restart == "close" else {"checkpoint_bytes": 0}
    with pyqstore.open(path, **options) as store, store.channel() as channel:  # type: ignore[arg-type]
        declare(channel, "few", max_length=3, max_length_bytes=1000)
        publish(channel, "few", *(b"%d" % i for i in range(10)))
        assert bodies(channel, "few")[0] == b"7"
        publish(channel, "few", b"10")
    with pyqstore.open(path) as store, store.channel() as channel:
        assert bodies(channel, "few") == [b"10"]


def test_limit_holds_after_a_restart(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        declare(channel, "small", max_length_bytes=6)
        publish(channel, "small", b"12", b"34", b"56")
    with pyqstore.open(path) as store, store.channel() as channel:
        publish(channel, "small", b"78")
        assert bodies(channel, "small") == [b"34", b"56", b"78"]


def test_a_full_queue_refuses(channel: pyqstore.Channel) -> None:
    declare(channel, "full", max_length=2, overflow="reject-publish")
    channel.queue_declare("open", durable=True)
    channel.exchange_declare("both", "fanout", durable=True)
    channel.queue_bind("full", "both")
    channel.queue_bind("open", "both")
    channel.confirm_select()
    heard = confirms(channel)
    for i in range(4):
        channel.basic_publish("both", "", b"%d" % i, PERSISTENT)
    assert channel.wait_for_confirms() is False
    channel.process_events()
    assert heard == {1: True, 2: True, 3: False, 4: False}
    assert bodies(channel, "full") == [b"0", b"1"]
    assert bodies(channel, "open") == [b"0", b"1", b"2", b"3"]
    publish(channel, "full", b"4")
    assert channel.wait_for_confirms() is True
    assert bodies(channel, "full") == [b"4"]


def test_rows_of_a_batch_are_refused_one_by_one(channel: pyqstore.Channel) -> None:
    declare(channel, "full", max_length_bytes=10, overflow="reject-publish")
    channel.queue_declare("open", durable=True)
    channel.confirm_select()
    heard = confirms(channel)
    rows = [b"abc"] * 6
    keys = ["full", "open", "full", "nowhere", "full", "full"]
    channel.publish_batch(pa.record_batch({"body": rows, "routing_key": keys}), "")
    assert channel.wait_for_confirms() is False
    channel.process_events()
    assert heard == {1: True, 2: True, 3: True, 4: True, 5: True, 6: False}
    assert bodies(channel, "full") == [b"abc"] * 3


def test_what_was_refused_stays_away(path: Path) -> None:
    with pyqstore.open(path, checkpoint_bytes=0) as store, store.channel() as channel:
        declare(channel, "full", max_length=1, overflow="reject-publish")
        publish(channel, "full", b"1", b"2")
        channel.publish_batch(pa.record_batch({"body": [b"3", b"4"]}), "", "full")
    with pyqstore.open(path) as store, store.channel() as channel:
        assert bodies(channel, "full") == [b"1"]


def test_a_transaction_is_refused_whole(store: pyqstore.Store, channel: pyqstore.Channel) -> None:
    declare(channel, "full", max_length=1, overflow="reject-publish")
    channel.queue_declare("open", durable=True)
    channel.tx_select()
    publish(channel, "open", b"1")
    publish(channel, "full", b"2", b"3")
    with pytest.raises(pyqstore.PreconditionFailed, match="queue 'full' is full"):
        channel.tx_commit()
    assert channel.closed
    with store.channel() as reader:
        assert bodies(reader, "open") == []
        assert bodies(reader, "full") == []


def test_a_full_queue_takes_back_what_it_gave(channel: pyqstore.Channel) -> None:
    declare(channel, "full", max_length=1, overflow="reject-publish")
    publish(channel, "full", b"1")
    message = channel.basic_get("full")
    publish(channel, "full", b"2")
    assert message is not None
    message.nack(requeue=True)
    assert bodies(channel, "full") == [b"1", b"2"]


def test_a_full_queue_refuses_rows_of_both_delivery_modes(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    """The process aborted: transient rows divided the record of what was refused."""
    declare(channel, "q", max_length=2, overflow="reject-publish")
    channel.confirm_select()
    batch = pa.record_batch(
        {"body": [b"%d" % i for i in range(20)], "delivery_mode": pa.array([1, 2] * 10, pa.uint8())}
    )
    channel.publish_batch(batch, "", "q")
    assert not channel.wait_for_confirms()
    assert bodies(channel, "q") == [b"0", b"1"]


def test_short_segments_refuse_many_rows(path: Path) -> None:
    """The process aborted: a stretch ends with its segment, and those were not counted."""
    with pyqstore.open(path, segment_entries=16) as store, store.channel() as channel:
        declare(channel, "q", max_length=2, overflow="reject-publish")
        channel.confirm_select()
        batch = pa.record_batch({"body": [b"%d" % i for i in range(10_000)]})
        with pytest.raises(pyqstore.PublishRefused, match="9998 of the batch's messages"):
            channel.publish_batch(batch, "", "q").wait()
        assert bodies(channel, "q") == [b"0", b"1"]
        assert store.queue_status("q")["messages_unacked"] == 0


def test_drops_are_no_acknowledgements(store: pyqstore.Store, channel: pyqstore.Channel) -> None:
    declare(channel, "q", max_length=1)
    publish(channel, "q", *(b"%d" % i for i in range(10)))
    message = get(channel, "q")
    message.ack()
    assert store.stats()["messages_acked"] == 1


def test_a_transaction_that_waits_for_the_disk_hands_out_nothing_that_is_too_much(
    store: pyqstore.Store,
) -> None:
    """What was too much was dropped after the commit had waited, and consumers had it meanwhile."""
    taken: list[bytes] = []
    with store.channel() as channel, store.channel() as consumer:
        channel.queue_declare("one", durable=True, arguments={"x-max-length": 1})
        channel.tx_select()
        done = threading.Event()

        def take() -> None:
            while not done.is_set():
                message = consumer.basic_get("one", auto_ack=True)
                if message is not None:
                    taken.append(message.body)

        taking = threading.Thread(target=take)
        taking.start()
        for _ in range(200):
            channel.basic_publish("", "one", b"dropped", PERSISTENT)
            channel.basic_publish("", "one", b"kept", PERSISTENT)
            channel.tx_commit()
        done.set()
        taking.join()
    assert b"dropped" not in taken

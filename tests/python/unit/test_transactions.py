"""Transactions: nothing is seen before the commit, all of it after; rollback; keys are once."""

import math
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore

from ..support import PERSISTENT, bodies, get, publish_numbers

pytestmark = pytest.mark.faces("sync", "aio")


def test_publishes_are_seen_after_the_commit(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    channel.queue_declare("other", durable=True)
    channel.tx_select()
    assert channel.basic_publish("", queue, b"1", PERSISTENT) == 0
    channel.basic_publish("", "other", b"2", PERSISTENT)
    with store.channel() as reader:
        assert bodies(reader, queue) == []
        assert channel.tx_commit() is True
        assert bodies(reader, queue) == [b"1"]
        assert bodies(reader, "other") == [b"2"]


def test_rollback_drops_publishes_and_takes_acks_back(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    channel.basic_publish("", queue, b"1", PERSISTENT)
    channel.tx_select()
    message = get(channel, queue)
    message.ack()
    channel.basic_publish("", queue, b"2", PERSISTENT)
    channel.tx_rollback()
    status = store.queue_status(queue)
    assert (status["messages_ready"], status["messages_unacked"]) == (0, 1)
    message.ack()
    assert store.queue_status(queue)["messages_unacked"] == 1
    channel.tx_commit()
    assert store.queue_status(queue)["messages_unacked"] == 0


def test_delivery_is_settled_once_in_a_transaction(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", queue, body)
    channel.tx_select()
    tags = [message.delivery_tag for message in channel.consume(queue, inactivity_timeout=0)]
    channel.basic_ack(tags[1])
    channel.tx_rollback()
    channel.basic_ack(tags[1])
    channel.basic_ack(tags[2], multiple=True)
    with pytest.raises(pyqstore.PreconditionFailed, match=f"unknown delivery tag {tags[0]}"):
        channel.basic_nack(tags[0])
    assert store.queue_status(queue)["messages_ready"] == 3


def _settle(channel: pyqstore.Channel, settles: list[tuple[str, int, bool]]) -> None:
    for verb, tag, multiple in settles:
        getattr(channel, f"basic_{verb}")(tag, multiple)


@pytest.mark.parametrize(
    ("settles", "unknown"),
    [
        ([("ack", 2, False)], 2),
        ([("ack", 3, True)], 1),
        ([("nack", 3, True)], 3),
        ([("ack", 2, False), ("ack", 3, True)], 2),
        ([("ack", 0, True)], 4),
    ],
)
@pytest.mark.parametrize(("verb", "multiple"), [("ack", False), ("nack", True)])
def test_what_a_transaction_settled_is_unknown_until_it_rolls_back(
    store: pyqstore.Store,
    queue: str,
    settles: list[tuple[str, int, bool]],
    unknown: int,
    verb: str,
    multiple: bool,
) -> None:
    for commits in (False, True):
        with store.channel() as channel:
            channel.queue_purge(queue)
            publish_numbers(channel, queue, 4, 1)
            for _ in range(4):
                channel.basic_get(queue)
            channel.tx_select()
            _settle(channel, settles)
            channel.tx_rollback()
            _settle(channel, settles)
            if commits:
                channel.tx_commit()
            with pytest.raises(pyqstore.PreconditionFailed) as caught:
                _settle(channel, [(verb, unknown, multiple)])
            assert str(caught.value) == f"PRECONDITION_FAILED - unknown delivery tag {unknown}"
            assert channel.closed
        assert store.queue_status(queue)["messages_unacked"] == 0


def test_multiple_takes_what_was_not_settled_before(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish_numbers(channel, queue, 9, 1)
    for _ in range(8):
        channel.basic_get(queue)
    channel.tx_select()
    channel.basic_nack(2)
    channel.basic_ack(4, multiple=True)
    channel.basic_ack(5)
    channel.basic_nack(7, multiple=True)
    channel.basic_ack(0, multiple=True)
    channel.basic_ack(0, multiple=True)
    channel.basic_get(queue)  # delivered after that "all"
    channel.tx_commit()
    status = store.queue_status(queue)
    assert (status["messages_ready"], status["messages_unacked"]) == (3, 1)
    assert [m.body for _ in range(3) if (m := channel.basic_get(queue))] == [b"2", b"6", b"7"]


def test_recover_is_not_part_of_a_transaction(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish_numbers(channel, queue, 5, 1)
    for _ in range(5):
        channel.basic_get(queue)
    channel.tx_select()
    channel.basic_ack(2)
    channel.basic_nack(4, requeue=False)
    channel.basic_recover()
    status = store.queue_status(queue)
    assert (status["messages_ready"], status["messages_unacked"]) == (3, 2)
    channel.tx_rollback()
    channel.basic_ack(2)
    channel.tx_commit()
    assert [m.body for _ in range(3) if (m := channel.basic_get(queue))] == [b"1", b"3", b"5"]
    channel.close()
    status = store.queue_status(queue)
    assert (status["messages_ready"], status["messages_unacked"]) == (4, 0)


def test_closing_in_a_transaction_requeues_what_it_settled(
    store: pyqstore.Store, queue: str
) -> None:
    with store.channel() as channel:
        publish_numbers(channel, queue, 4, 1)
        for _ in range(3):
            channel.basic_get(queue)
        channel.tx_select()
        channel.basic_ack(2)
        channel.basic_nack(3, requeue=False)
    with store.channel() as channel:
        assert bodies(channel, queue) == [b"1", b"2", b"3", b"4"]


def test_commit_is_durable_with_acks_and_publishes_of_all_queues(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("a", durable=True)
        channel.queue_declare("b", durable=True)
        channel.basic_publish("", "a", b"1", PERSISTENT)
        channel.tx_select()
        message = get(channel, "a")
        message.ack()
        channel.basic_publish("", "b", message.body, PERSISTENT)
        channel.tx_commit()
    with pyqstore.open(path) as store, store.channel() as channel:
        assert bodies(channel, "a") == []
        assert bodies(channel, "b") == [b"1"]


def test_key_is_committed_once(channel: pyqstore.Channel, queue: str) -> None:
    channel.tx_select()
    channel.basic_publish("", queue, b"1", PERSISTENT)
    assert channel.tx_commit(key="job-1") is True
    channel.basic_publish("", queue, b"again", PERSISTENT)
    assert channel.tx_commit(key="job-1") is False
    channel.basic_publish("", queue, b"2", PERSISTENT)
    assert channel.tx_commit(key="job-2") is True
    assert channel.tx_commit() is True
    channel.queue_declare(queue, passive=True)
    assert channel.queue_declare(queue, passive=True).message_count == 2


def test_wrong_key_is_refused(channel: pyqstore.Channel) -> None:
    channel.tx_select()
    with pytest.raises(ValueError, match="empty"):
        channel.tx_commit(key="")
    with pytest.raises(TypeError, match="key must be str"):
        channel.tx_commit(key=b"k")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        channel.tx_commit("k")  # type: ignore[call-arg]


@pytest.mark.parametrize("verb", ["tx_commit", "tx_rollback"])
def test_outside_a_transaction_there_is_nothing_to_end(store: pyqstore.Store, verb: str) -> None:
    with store.channel() as channel, pytest.raises(pyqstore.PreconditionFailed):
        getattr(channel, verb)()


@pytest.mark.faces("sync")
def test_returns_come_at_the_commit(channel: pyqstore.Channel) -> None:
    returned: list[pyqstore.ReturnedMessage] = []
    channel.add_return_listener(returned.append)
    channel.tx_select()
    channel.basic_publish("", "nowhere", b"x", mandatory=True)
    assert channel.process_events() == 0
    channel.tx_commit()
    assert channel.process_events() == 1
    assert returned[0].body == b"x"


def test_a_get_that_acknowledges_by_itself_is_no_part_of_a_transaction(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    for body in (b"0", b"1"):
        channel.basic_publish("", queue, body, PERSISTENT)
    channel.tx_select()
    assert get(channel, queue, auto_ack=True).body == b"0"
    channel.basic_publish("", queue, b"2", PERSISTENT)
    channel.tx_rollback()
    assert bodies(channel, queue) == [b"1"]
    channel.basic_publish("", queue, b"3", PERSISTENT)
    assert channel.tx_commit(key="once") is True
    assert store.transaction_known("once")


def test_batch_belongs_to_the_transaction(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    channel.tx_select()
    receipt = channel.publish_batch(pa.table({"body": [b"1", b"2"]}), routing_key=queue)
    assert receipt.count == 2
    assert store.queue_status(queue)["messages_ready"] == 0
    channel.tx_commit()
    assert store.queue_status(queue)["messages_ready"] == 2


@pytest.mark.faces("sync")
@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_cancelling_in_a_transaction_requeues_what_was_held(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str, how: str
) -> None:
    channel.queue_declare("other")
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", queue, body)
    channel.tx_select()
    held = channel.basic_consume(queue)
    reading = channel.basic_consume("other")
    assert channel.next_delivery(reading, 0) is None
    assert store.queue_status(queue)["messages_unacked"] == 3
    assert channel.basic_cancel(held) == []
    assert store.queue_status(queue)["messages_ready"] == 3
    channel.tx_commit() if how == "commit" else channel.tx_rollback()
    assert bodies(channel, queue) == [b"1", b"2", b"3"]


@pytest.mark.faces("sync")
def test_delivery_to_a_consumer_nobody_knows_is_requeued_in_a_transaction(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    channel.queue_declare("other")
    channel.basic_publish("", queue, b"1")
    channel.tx_select()
    channel.basic_consume("other", lambda message: None)
    channel._consume(queue, "", 0, b"")  # as if an interrupt came before its tag was noted
    channel.process_events(0)
    assert store.queue_status(queue)["messages_ready"] == 1
    assert store.queue_status(queue)["consumers"] == 0
    channel.tx_rollback()
    assert bodies(channel, queue) == [b"1"]


def test_keys_are_kept_until_they_are_forgotten(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.tx_select()
        for key in ("a", "b", "c"):
            assert channel.tx_commit(key=key)
        assert store.forget_transaction("a") == 1
        assert store.forget_transaction("a") == 0
        assert not store.transaction_known("a")
        assert store.forget_transaction(older_than=timedelta(days=1)) == 0
        assert channel.tx_commit(key="a")
        assert not channel.tx_commit(key="b")
        assert store.forget_transaction("c") == 1
    with pyqstore.open(path) as store, store.channel() as channel:
        assert [store.transaction_known(key) for key in "abc"] == [True, True, False]
        assert store.forget_transaction(older_than=0.0) == 2
        assert [store.transaction_known(key) for key in "abc"] == [False] * 3
    with pyqstore.open(path) as store:
        assert [store.transaction_known(key) for key in "abc"] == [False] * 3


def test_forgetting_takes_a_key_or_an_age(store: pyqstore.Store) -> None:
    with pytest.raises(TypeError, match="either a key or older_than"):
        store.forget_transaction()
    with pytest.raises(TypeError, match="either a key or older_than"):
        store.forget_transaction("key", older_than=1)
    with pytest.raises(ValueError, match="0 seconds or more"):
        store.forget_transaction(older_than=timedelta(seconds=-1))
    with pytest.raises(ValueError, match="0 seconds or more"):
        store.forget_transaction(older_than=float("nan"))
    with pytest.raises(ValueError, match="must not be empty"):
        store.forget_transaction("")


def test_damaged_file_of_keys_is_told_and_no_key_is_forgotten(path: Path) -> None:
    with pyqstore.open(path, memory_budget="64KiB", sync="none") as store:
        with store.channel() as channel:
            channel.tx_select()
            for number in range(300):
                channel.tx_commit(key=f"key {number}")
        store.checkpoint()
    file = max((path / "checkpoint").glob("*.key"), key=lambda file: file.stat().st_size)
    whole = file.read_bytes()
    page = bytearray(whole)
    page[-4000] ^= 1
    file.write_bytes(page)
    damage = pyqstore.verify(path).damage
    assert [found.path for found in damage] == [f"checkpoint/{file.name}"]
    damaged = f"checkpoint/{file.name}.*page of keys is damaged"
    refused = []
    with pyqstore.open(path, memory_budget="64KiB") as store, store.channel() as channel:
        channel.tx_select()
        for number in range(300):
            try:
                assert store.transaction_known(f"key {number}")
            except pyqstore.StoreCorrupt:
                refused.append(number)
        for number in refused:
            with pytest.raises(pyqstore.StoreCorrupt, match=damaged):
                channel.tx_commit(key=f"key {number}")
    assert 1 <= len(refused) < 300
    file = max((path / "checkpoint").glob("*.key"), key=lambda file: file.stat().st_size)
    file.write_bytes(file.read_bytes()[:-4096])
    with pytest.raises(pyqstore.StoreCorrupt, match="another size than its header says"):
        pyqstore.open(path)
    with pyqstore.open(path, recovery="salvage") as store:
        assert store.recovery_report["lost_ranges"] == 1
        assert store.recovery_report["lost_bytes"] >= 4096


def test_an_age_that_is_no_number_is_a_value_error(store: pyqstore.Store) -> None:
    for age in (Decimal("NaN"), float("nan"), -1, math.inf):
        with pytest.raises(ValueError, match="older_than"):
            store.forget_transaction(older_than=age)  # type: ignore[arg-type]

"""Queues with priorities: x-max-priority, and the order it makes, whatever the messages came by."""

import random
import signal
from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore

from ..support import bodies, get, run_python


def declare(channel: pyqstore.Channel, most: int, queue: str = "q", **arguments: int) -> None:
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    channel.queue_declare(queue, durable=True, arguments={"x-max-priority": most, **named})


def publish(
    channel: pyqstore.Channel, body: bytes, priority: int | None = None, queue: str = "q"
) -> None:
    properties = pyqstore.Properties(delivery_mode=2, priority=priority)
    channel.basic_publish("", queue, body, properties)


def rows(batch: pa.RecordBatch) -> list[bytes]:
    return batch.column("body").to_pylist()  # type: ignore[no-any-return]


def test_no_priority_is_the_lowest_and_too_much_is_the_highest(channel: pyqstore.Channel) -> None:
    declare(channel, 3)
    for body, priority in ((b"none", None), (b"1", 1), (b"255", 255), (b"3", 3), (b"0", 0)):
        publish(channel, body, priority)
    assert bodies(channel, "q") == [b"255", b"3", b"1", b"none", b"0"]


@pytest.mark.parametrize("most", [-1, 256, "5", 1.5])
def test_other_numbers_of_levels_are_refused(channel: pyqstore.Channel, most: object) -> None:
    with pytest.raises(pyqstore.PreconditionFailed, match="x-max-priority"):
        channel.queue_declare("q", arguments={"x-max-priority": most})  # type: ignore[dict-item]


def test_a_queue_of_level_zero_alone_is_a_plain_one(channel: pyqstore.Channel) -> None:
    declare(channel, 0)
    publish(channel, b"a")
    publish(channel, b"b", 9)
    assert bodies(channel, "q") == [b"a", b"b"]


def test_it_is_declared_again_with_as_many_levels(store: pyqstore.Store) -> None:
    with store.channel() as channel:
        declare(channel, 5)
        declare(channel, 5)
    for arguments in ({"x-max-priority": 6}, {}):
        with store.channel() as channel, pytest.raises(pyqstore.PreconditionFailed):
            channel.queue_declare("q", durable=True, arguments=arguments)


def test_priorities_mean_nothing_to_other_queues(channel: pyqstore.Channel) -> None:
    channel.queue_declare("plain", durable=True)
    publish(channel, b"a", 1, "plain")
    publish(channel, b"b", 9, "plain")
    assert bodies(channel, "plain") == [b"a", b"b"]


@pytest.mark.parametrize("has_column", [True, False])
def test_rows_of_a_batch_go_to_their_levels(channel: pyqstore.Channel, has_column: bool) -> None:
    declare(channel, 4)
    declare(channel, 1, "two")
    channel.queue_declare("plain", durable=True)
    channel.exchange_declare("fan", "fanout", durable=True)
    for queue in ("q", "two", "plain"):
        channel.queue_bind(queue, "fan", "")
    names = [b"%03d" % i for i in range(500)]
    own = [None if i % 7 == 6 else i % 7 for i in range(500)]
    columns: dict[str, object] = {"body": names}
    if has_column:
        columns["priority"] = pa.array(own, pa.uint8())
    channel.publish_batch(
        pa.record_batch(columns), "fan", "", properties=pyqstore.Properties(priority=2)
    )
    has = [2 if each is None or not has_column else each for each in own]

    def ordered(most: int) -> list[bytes]:
        return [names[i] for i in sorted(range(500), key=lambda i: -min(has[i], most))]

    assert bodies(channel, "q") == ordered(4)
    assert bodies(channel, "two") == ordered(1)
    assert bodies(channel, "plain") == names


def test_a_batch_with_keys_of_its_own(channel: pyqstore.Channel) -> None:
    for queue in ("a", "b"):
        declare(channel, 9, queue)
    batch = pa.record_batch(
        {
            "body": [b"%d" % i for i in range(8)],
            "routing_key": ["a", "b", "a", "b", "nobody", "a", "b", "a"],
            "priority": pa.array([1, 9, 2, None, 3, 2, 9, 30], pa.uint8()),
        }
    )
    channel.publish_batch(batch, "")
    assert bodies(channel, "a") == [b"7", b"2", b"5", b"0"]
    assert bodies(channel, "b") == [b"1", b"6", b"3"]


def test_one_batch_is_taken_across_levels(channel: pyqstore.Channel) -> None:
    declare(channel, 9)
    for i in range(30):
        publish(channel, b"%02d" % i, i % 10)
    wanted = [b"%02d" % i for i in sorted(range(30), key=lambda i: -(i % 10))]
    first = channel.get_batch("q", max_messages=17, auto_ack=False)
    assert rows(first) == wanted[:17]
    publish(channel, b"late", 5)
    assert rows(channel.get_batch("q", auto_ack=True)) == [b"late", *wanted[17:]]
    channel.basic_recover(requeue=True)
    again = channel.get_batch("q", auto_ack=True)
    assert rows(again) == wanted[:17]
    assert all(again.column("redelivered").to_pylist())


def test_a_consumer_gets_the_highest_that_is_there(channel: pyqstore.Channel) -> None:
    declare(channel, 9)
    for i in (1, 5, 3):
        publish(channel, b"%d" % i, i)
    got = []
    channel.basic_qos(prefetch_count=1)
    for message in channel.consume("q"):
        got.append(message.body)
        if message.body == b"5":
            publish(channel, b"4", 4)
        channel.basic_ack(message.delivery_tag)
        if len(got) == 4:
            break
    assert got == [b"5", b"4", b"3", b"1"]


def test_a_transaction_brings_all_levels(store: pyqstore.Store) -> None:
    with store.channel() as channel, store.channel() as other:
        declare(channel, 9)
        publish(other, b"before", 3)
        channel.tx_select()
        publish(channel, b"low", 1)
        channel.publish_batch(
            pa.record_batch({"body": [b"x", b"y"], "priority": pa.array([7, 9], pa.uint8())}),
            "",
            "q",
        )
        publish(channel, b"high", 9)
        assert channel.queue_declare("q", passive=True).message_count == 1
        channel.tx_commit()
        assert bodies(other, "q") == [b"y", b"high", b"x", b"before", b"low"]


def test_limits_count_all_levels(channel: pyqstore.Channel) -> None:
    declare(channel, 9, max_length=5)
    for i in range(10):
        publish(channel, b"%d" % i, 9 - i)
    channel.publish_batch(
        pa.record_batch({"body": [b"a", b"b"], "priority": pa.array([0, 8], pa.uint8())}), "", "q"
    )
    assert bodies(channel, "q") == [b"6", b"7", b"8", b"9", b"a"]  # the head is dropped


def test_bytes_are_counted_over_levels(channel: pyqstore.Channel) -> None:
    declare(channel, 9, max_length_bytes=100)
    for i in range(6):
        publish(channel, bytes([i]) * 30, i)
    assert [body[0] for body in bodies(channel, "q")] == [2, 1, 0]


def test_a_full_queue_refuses_whatever_the_priority(store: pyqstore.Store) -> None:
    with store.channel() as channel:
        channel.queue_declare(
            "q",
            durable=True,
            arguments={"x-max-priority": 9, "x-max-length": 2, "x-overflow": "reject-publish"},
        )
        channel.confirm_select()
        publish(channel, b"a", 1)
        publish(channel, b"b", 2)
        assert channel.wait_for_confirms()
        publish(channel, b"c", 9)
        assert not channel.wait_for_confirms()
        assert channel.queue_declare("q", passive=True).message_count == 2
    with store.channel() as channel:
        channel.tx_select()
        publish(channel, b"c", 5)
        with pytest.raises(pyqstore.PreconditionFailed, match="full"):
            channel.tx_commit()


def test_expiry_comes_although_the_timer_looked_before(channel: pyqstore.Channel) -> None:
    """It forgot the queue when nothing of the lowest priority was to expire."""
    channel.queue_declare("dead", durable=True)
    channel.queue_declare(
        "q",
        arguments={
            "x-max-priority": 9,
            "x-message-ttl": 200,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        },
    )
    publish(channel, b"high", 5)
    dead = next(channel.consume("dead", auto_ack=True, inactivity_timeout=20))
    assert dead is not None
    assert dead.body == b"high"


def test_messages_of_all_levels_expire_and_die(channel: pyqstore.Channel) -> None:
    channel.queue_declare("dead", durable=True)
    channel.queue_declare(
        "q",
        durable=True,
        arguments={
            "x-max-priority": 9,
            "x-message-ttl": 1,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        },
    )
    for i in range(10):
        publish(channel, b"%d" % i, i)
    died = []
    for message in channel.consume("dead", auto_ack=True, inactivity_timeout=20):
        died.append(message)
        if len(died) == 10:
            break
    assert sorted(message.body for message in died) == [b"%d" % i for i in range(10)]
    headers = died[0].properties.headers
    assert headers is not None
    assert headers["x-first-death-queue"] == "q"
    assert headers["x-first-death-reason"] == "expired"
    assert bodies(channel, "q") == []


def test_a_rejected_message_dies_by_the_queues_name(channel: pyqstore.Channel) -> None:
    declare(channel, 9, "dead")
    channel.queue_declare(
        "q",
        durable=True,
        arguments={
            "x-max-priority": 9,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        },
    )
    for i in (3, 8):
        publish(channel, b"%d" % i, i)
    for _ in range(2):
        message = get(channel, "q")
        channel.basic_reject(message.delivery_tag, requeue=False)
    dead_letter = get(channel, "dead")
    assert dead_letter.body == b"8"
    assert dead_letter.properties.priority == 8
    assert dead_letter.properties.headers is not None
    assert dead_letter.properties.headers["x-first-death-queue"] == "q"


def test_what_came_in_any_order_leaves_in_order_after_all_that_may_happen(path: Path) -> None:
    chance = random.Random(5)
    wanted: list[tuple[int, bytes]] = []
    for round_ in range(4):
        with pyqstore.open(
            path, memory_budget="1MiB", segment_entries=64, journal_file_bytes="1MiB"
        ) as store:
            channel = store.channel()
            declare(channel, 20)
            for i in range(800):
                priority = chance.randrange(25)
                body = b"%d-%03d" % (round_, i) + bytes(chance.randrange(6000))
                publish(channel, body, priority)
                wanted.append((min(priority, 20), body))
            wanted.sort(key=lambda each: -each[0])
            if round_ % 2 == 0:
                store.checkpoint()
            for _ in range(200):
                message = get(channel, "q", auto_ack=True)
                assert message.body == wanted.pop(0)[1]
            batch = channel.get_batch("q", max_messages=100, max_bytes=1 << 30, auto_ack=True)
            assert rows(batch) == [wanted.pop(0)[1] for _ in range(batch.num_rows)]
            assert store.queue_status("q")["messages_ready"] == len(wanted)
            if round_ == 1:
                assert store.stats()["messages_paged_out"] > 0
    assert pyqstore.verify(path).queues == 1
    with pyqstore.open(path) as store, store.channel() as channel:
        while wanted:
            message = get(channel, "q", auto_ack=True)
            assert message.body == wanted.pop(0)[1]
        assert channel.basic_get("q") is None


KILLED = """
import os, signal, sys
import pyqstore

store = pyqstore.open(sys.argv[1], journal_file_bytes="1MiB")
channel = store.channel()
channel.queue_declare("q", durable=True, arguments={"x-max-priority": 9})
channel.confirm_select()
for i in range(100):
    properties = pyqstore.Properties(delivery_mode=2, priority=i % 12)
    channel.basic_publish("", "q", b"%02d" % i, properties)
    if i == 40:
        store.checkpoint()
for _ in range(10):
    channel.basic_get("q", auto_ack=True)
channel.wait_for_confirms()
store.sync()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_levels_survive_a_kill(path: Path) -> None:
    assert run_python(KILLED, path).returncode == -signal.SIGKILL
    wanted = [b"%02d" % i for i in sorted(range(100), key=lambda i: -min(i % 12, 9))]
    with pyqstore.open(path) as store, store.channel() as channel:
        assert bodies(channel, "q") == wanted[10:]

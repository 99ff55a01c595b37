"""The queue that loses nothing by default: who knows no other verb keeps every message."""

from __future__ import annotations

import json as standard_json
import pickle
import queue as standard_queue
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pyarrow
import pytest

import pyqstore

pytestmark = pytest.mark.faces("sync", "aio")


@pytest.fixture
def queue(store: pyqstore.Store) -> pyqstore.Queue:
    return store.queue("jobs")


def test_what_was_put_is_there_after_close_and_open(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "store") as store:
        store.queue("a").put(b"1")
    with pyqstore.open(tmp_path / "store") as store:
        queue = store.queue("a")
        assert len(queue) == 1
        with queue.get(timeout=30) as message:
            assert message.body == b"1"
        assert len(queue) == 0


PUT_AND_DIE = """
import os, signal, sys
import pyqstore
pyqstore.open(sys.argv[1]).queue("a").put(b"1")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_put_is_there_after_sigkill(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    done = subprocess.run([sys.executable, "-c", PUT_AND_DIE, path], check=False)
    assert done.returncode == -signal.SIGKILL
    with pyqstore.open(path) as store:
        assert [message.body for message in store.queue("a").peek(10)] == [b"1"]


GET_AND_DIE = """
import os, signal, sys
import pyqstore
with pyqstore.open(sys.argv[1]).queue("a").get(timeout=30):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_message_under_way_is_there_after_sigkill(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    with pyqstore.open(path) as store:
        store.queue("a").put(b"1")
    done = subprocess.run([sys.executable, "-c", GET_AND_DIE, path], check=False)
    assert done.returncode == -signal.SIGKILL
    with pyqstore.open(path) as store, store.queue("a").get(timeout=0) as message:
        assert message.body == b"1"
        assert message.redelivered


def test_message_is_given_back_when_the_body_raises(queue: pyqstore.Queue) -> None:
    queue.put("text")
    with pytest.raises(ZeroDivisionError), queue.get(timeout=30):
        1 / 0  # noqa: B018
    with queue.get(timeout=0) as message:
        assert message.redelivered
        assert message.delivery_count == 1


def test_message_settled_in_the_body_is_left_alone(queue: pyqstore.Queue) -> None:
    queue.put("a")
    queue.put("b")
    with queue.get() as message:
        message.ack()
    with queue.get() as message:
        message.nack()

    def settle_and_raise() -> None:
        with queue.get() as message:
            message.ack()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        settle_and_raise()
    assert len(queue) == 0


def test_get_raises_empty_when_none_came_in_time(queue: pyqstore.Queue) -> None:
    with pytest.raises(pyqstore.Empty, match="jobs"):
        queue.get(timeout=0)
    with pytest.raises(standard_queue.Empty):
        queue.get(timeout=0.05)
    with pytest.raises(ValueError, match="timeout"):
        queue.get(timeout=-1)


def test_get_waits_for_a_message_of_another_thread(queue: pyqstore.Queue) -> None:
    thread = threading.Timer(0.1, queue.put, (b"late",))
    thread.start()
    with queue.get(timeout=30) as message:
        assert message.body == b"late"
    thread.join()


def test_message_that_waits_for_nobody_is_not_kept_from_others(
    store: pyqstore.Store, queue: pyqstore.Queue
) -> None:
    with pytest.raises(pyqstore.Empty):
        queue.get(timeout=0.05)  # its consumer is gone, and takes nothing any more
    queue.put(b"1")
    assert store.queue_status("jobs")["consumers"] == 0
    assert len(queue) == 1


def test_iteration_acknowledges_when_the_body_ends(queue: pyqstore.Queue) -> None:
    queue.put_many([b"1", b"2", b"3"])
    seen = []

    def handle_two() -> None:
        for message in queue:
            seen.append(message.body)
            if len(seen) == 2:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        handle_two()
    assert seen == [b"1", b"2"]
    assert [message.body for message in queue.peek(9)] == [b"2", b"3"]


@pytest.mark.faces("sync")
def test_message_under_way_at_a_break_is_given_back_unless_settled(queue: pyqstore.Queue) -> None:
    queue.put_many([b"1", b"2"])
    for _ in queue:
        break
    assert len(queue) == 2
    for message in queue:
        message.ack()
        break
    assert len(queue) == 1


def test_put_many_takes_an_iterable_and_arrow(queue: pyqstore.Queue) -> None:
    assert queue.put_many(str(number) for number in range(1000)) == 1000
    assert queue.put_many(pyarrow.table({"body": ["a", "b"]})) == 2
    assert queue.put_many([]) == 0
    assert len(queue) == 1002
    for wrong in (b"bytes", "text", 5):
        with pytest.raises(TypeError, match="iterable of bodies"):
            queue.put_many(wrong)


def test_put_many_of_what_was_got_elsewhere_comes_here(
    store: pyqstore.Store, queue: pyqstore.Queue
) -> None:
    other = store.queue("other")
    other.put(b"1", headers={"a": "b"})
    with store.channel() as channel:
        batch = channel.get_batch("other", auto_ack=True)
        where = ["delivery_tag", "redelivered", "delivery_count"]
        assert queue.put_many(batch.drop_columns(where)) == 1
    assert len(other) == 0
    with queue.get(timeout=0) as message:
        assert message.properties.headers == {"a": "b"}


def test_put_tells_that_a_full_queue_refused(store: pyqstore.Store) -> None:
    queue = store.queue("small", max_length=2, overflow="reject-publish")
    queue.put(b"1")
    queue.put(b"2")
    with pytest.raises(pyqstore.PublishRefused):
        queue.put(b"3")
    assert len(queue) == 2
    with pytest.raises(pyqstore.PublishRefused):
        queue.put_many([b"3", b"4"])
    with pytest.raises(pyqstore.PublishRefused):
        queue.put_many(pyarrow.table({"body": [b"3"]}))
    assert len(queue) == 2


def test_put_to_a_deleted_queue_raises(store: pyqstore.Store, queue: pyqstore.Queue) -> None:
    queue.put(b"1")
    assert queue.delete() == 1
    with pytest.raises(pyqstore.Error):
        queue.put(b"2")
    with pytest.raises(pyqstore.NotFound):
        queue.get(timeout=0)
    again = store.queue("jobs")
    again.put(b"3")
    queue.put(b"4")
    assert len(queue) == 2


def test_delayed_message_is_not_there_before_its_time(queue: pyqstore.Queue) -> None:
    queue.put(b"never", delay=timedelta(hours=1))
    queue.put(b"now")
    assert [message.body for message in queue.peek(9)] == [b"now"]
    with queue.get(timeout=0) as message:
        assert message.body == b"now"
    began = time.monotonic()
    queue.put(b"later", delay=timedelta(seconds=0.5))
    with queue.get(timeout=30) as message:
        assert message.body == b"later"
    assert time.monotonic() - began >= 0.5


def test_retry_with_a_delay_lets_others_pass(queue: pyqstore.Queue) -> None:
    queue.put_many([b"1", b"2"])
    with queue.get() as message:
        message.retry(delay=3600)
    with queue.get(timeout=30) as message:
        assert message.body == b"2"
        message.retry(delay=0.2)
    with queue.get(timeout=30) as message:
        assert (message.body, message.delivery_count) == (b"2", 1)


def test_expired_message_is_gone(queue: pyqstore.Queue) -> None:
    queue.put(b"1", expires=0.001)
    time.sleep(0.05)
    with pytest.raises(pyqstore.Empty):
        queue.get(timeout=0)


def test_priority_headers_and_key_reach_the_consumer(store: pyqstore.Store) -> None:
    queue = store.queue("levels", max_priority=5)
    queue.put(b"low", priority=1)
    queue.put(b"high", priority=4, headers={"tries": 3}, key="eu.orders")
    with queue.get() as message:
        assert (message.body, message.routing_key) == (b"high", "eu.orders")
        assert message.properties.headers == {"tries": 3}
        assert message.properties.delivery_mode == 2
    with queue.get() as message:
        assert (message.body, message.routing_key) == (b"low", "levels")


def test_key_reaches_the_queue_after_close_and_open(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "store") as store:
        store.queue("a").put(b"1", key="k")
    with pyqstore.open(tmp_path / "store") as store:
        queue = store.queue("a")
        queue.put(b"2", key="k")
        assert [message.routing_key for message in queue.peek(9)] == ["k", "k"]


def test_bodies_are_text_and_bytes_and_other_values_need_a_codec(queue: pyqstore.Queue) -> None:
    queue.put("héllo")
    with queue.get() as message:
        assert message.body == "héllo".encode()
        assert message.properties.content_type == "text/plain"
        assert queue.decode(message) == message.body
    for wrong in ({"a": 1}, 5, None):
        with pytest.raises(TypeError, match=r"codec=pyqstore\.json"):
            queue.put(wrong)
    assert len(queue) == 0


@pytest.mark.parametrize("codec", [pyqstore.json, standard_json, pickle])
def test_codec_makes_bodies_of_values(store: pyqstore.Store, codec: pyqstore.Codec) -> None:
    queue = store.queue("values", codec=codec)
    value = {"id": 5, "names": ["a", "ß"]}
    queue.put(value)
    queue.put_many([value, "text"])
    for expected in (value, value, "text"):
        with queue.get() as message:
            assert queue.decode(message) == expected


def test_json_of_a_message(store: pyqstore.Store, queue: pyqstore.Queue) -> None:
    queue.put({"id": 5}, codec=pyqstore.json)
    with queue.get() as message:
        assert message.json() == {"id": 5}
        assert message.properties.content_type == "application/json"
    with pytest.raises(ValueError, match="JSON"):
        store.queue("values", codec=pyqstore.json).put(float("nan"))


def test_queue_that_is_there_is_taken_as_it_is_unless_it_is_not_safe(store: pyqstore.Store) -> None:
    with store.channel() as channel:
        channel.queue_declare("limited", durable=True, arguments={"x-max-length": 5})
        channel.queue_declare("gone", durable=False)
    store.queue("limited").put(b"1")
    store.queue("limited", max_length=5).put(b"2")
    store.queue("limited", **{"x-max-length": 5}).put(b"3")
    with pytest.raises(pyqstore.PreconditionFailed):
        store.queue("limited", max_length=6)
    with pytest.raises(pyqstore.PreconditionFailed, match="not durable"):
        store.queue("gone")
    store.queue("times", message_ttl=timedelta(minutes=1))
    store.queue("times", message_ttl=60_000)
    for wrong, error in (("", ValueError), (5, TypeError), ("a\0b", ValueError)):
        with pytest.raises(error):
            store.queue(wrong)  # type: ignore[arg-type]


def test_purge_and_peek(queue: pyqstore.Queue) -> None:
    queue.put_many(["1", "2", "3"])
    assert [message.body for message in queue.peek(2)] == [b"1", b"2"]
    assert queue.peek(0) == []
    with pytest.raises(TypeError):
        queue.peek(1)[0].ack()
    assert queue.purge() == 3
    assert len(queue) == 0
    assert queue


def test_many_threads_put_and_get_through_one_queue(queue: pyqstore.Queue) -> None:
    seen: list[bytes] = []

    def put(number: int) -> None:
        for index in range(50):
            queue.put(b"%d.%d" % (number, index))

    def get() -> None:
        while True:
            with queue.get(timeout=60) as message:
                if message.body == b"end":
                    return
                seen.append(message.body)

    puts = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    gets = [threading.Thread(target=get) for _ in range(4)]
    for thread in puts + gets:
        thread.start()
    for thread in puts:
        thread.join()
    queue.put_many([b"end"] * len(gets))
    for thread in gets:
        thread.join()
    assert len(queue) == 0
    assert sorted(seen) == sorted(b"%d.%d" % (n, i) for n in range(4) for i in range(50))


@pytest.mark.faces("sync")
def test_what_an_ended_thread_held_is_given_back(queue: pyqstore.Queue) -> None:
    queue.put(b"1")
    thread = threading.Thread(target=lambda: queue.get(timeout=30))
    thread.start()
    thread.join()
    with queue.get(timeout=30) as message:
        assert message.redelivered


def test_wrong_time_to_live_names_its_argument(queue: pyqstore.Queue) -> None:
    for wrong in (float("inf"), float("nan"), -1, 1e300, timedelta.max):
        with pytest.raises(ValueError, match="expires must be"):
            queue.put(b"1", expires=wrong)
    for wrong in ("5", True):
        with pytest.raises(TypeError, match="expires must be"):
            queue.put(b"1", expires=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="timeout must be"):
        queue.get(timeout="5")  # type: ignore[arg-type]
    assert len(queue) == 0


def test_one_mapping_is_no_iterable_of_bodies(store: pyqstore.Store) -> None:
    queue = store.queue("values", codec=pyqstore.json)
    with pytest.raises(TypeError, match="iterable of bodies"):
        queue.put_many({"id": 5})  # its keys would be put
    assert len(queue) == 0


def test_put_many_counts_what_a_full_queue_refused(store: pyqstore.Store) -> None:
    queue = store.queue("small", max_length=2, overflow="reject-publish")
    with pytest.raises(pyqstore.PublishRefused, match="3 messages were refused") as refused:
        queue.put_many(str(number) for number in range(5))
    assert refused.value.count == 3
    assert refused.value.publish_numbers == (3, 4, 5)
    with pytest.raises(pyqstore.PublishRefused) as refused:
        queue.put_many(str(number) for number in range(20_000))
    assert refused.value.count == 20_000
    assert len(refused.value.publish_numbers) == 8
    assert len(queue) == 2


def test_put_many_ignores_columns_of_one_name_that_it_ignores(queue: pyqstore.Queue) -> None:
    table = pyarrow.table([["1"], ["x"], ["y"]], names=["body", "exchange", "exchange"])
    assert queue.put_many(table) == 1


def test_deleted_queue_takes_its_exchange_along(store: pyqstore.Store) -> None:
    exchanges = store.exchanges().keys()
    queue = store.queue("jobs")
    queue.put(b"1", key="k")
    assert store.exchanges().keys() > exchanges
    queue.delete()
    assert store.exchanges().keys() == exchanges
    long = store.queue("n" * 250)
    with pytest.raises(ValueError, match="key: only a queue"):
        long.put(b"1", key="k")
    long.put(b"1")


def test_peek_of_a_part_of_a_message_is_an_error(queue: pyqstore.Queue) -> None:
    queue.put_many(["1", "2", "3"])
    for wrong in (1.5, "1", None):
        with pytest.raises(TypeError):
            queue.peek(wrong)  # type: ignore[arg-type]


def test_queue_of_a_store_opened_for_reading_can_be_looked_at(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "store") as store:
        store.queue("a").put(b"1")
    with pyqstore.open(tmp_path / "store", read_only=True) as store:
        queue = store.queue("a")
        assert len(queue) == 1
        assert [message.body for message in queue.peek(9)] == [b"1"]
        with pytest.raises(pyqstore.StoreReadOnly):
            queue.get(timeout=0)
        with pytest.raises(pyqstore.StoreReadOnly):
            queue.put(b"2")


@pytest.mark.faces("sync")
def test_warning_of_an_argument_names_the_line_that_gave_it(store: pyqstore.Store) -> None:
    with pytest.warns(pyqstore.UnknownArgument, match="max-length") as warned:
        store.queue("a", max_lenght=5)
    assert warned[0].filename == __file__


def test_argument_with_its_x_spelt_out_is_that_argument(store: pyqstore.Store) -> None:
    with pytest.raises(pyqstore.PreconditionFailed, match="x-ha-policy"):
        store.queue("copied", x_ha_policy="all")
    store.queue("short", x_max_length=1, overflow="drop-head").put_many([b"1", b"2"])
    assert len(store.queue("short", x_max_length=1, overflow="drop-head")) == 1

"""The store itself: opening, owning, closing, forking, asking; on real files."""

import contextlib
import copy
import os
import pickle
import stat
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import pyqstore

from ..support import get, publish_numbers, run_python, wait_until


def test_open_makes_the_directory_for_its_owner_alone(path: Path) -> None:
    with pyqstore.open(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert path.is_dir()


@pytest.mark.parametrize("kind", [str, Path])
def test_path_may_be_str_or_path_and_is_kept(path: Path, kind: Callable[[Path], Any]) -> None:
    with pyqstore.open(kind(path)) as store:
        assert store.path == str(path)
        assert str(path) in repr(store)


@pytest.mark.parametrize(
    ("wrong", "kind"), [(7, TypeError), (b"x", TypeError), ("", ValueError), ("a\0b", ValueError)]
)
def test_wrong_path_is_refused(wrong: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        pyqstore.open(wrong)


def test_missing_parent_is_told(tmp_path: Path) -> None:
    with pytest.raises(pyqstore.StoreError, match=r"director.*does not exist"):
        pyqstore.open(tmp_path / "no" / "store")


def test_no_store_is_made_without_create(path: Path) -> None:
    with pytest.raises(pyqstore.StoreNotFound):
        pyqstore.open(path, create=False)
    assert not path.exists()
    path.mkdir(0o700)
    with pytest.raises(pyqstore.StoreNotFound):
        pyqstore.open(path, create=False)
    assert not list(path.iterdir())
    pyqstore.open(path).close()
    pyqstore.open(path, create=False).close()


def test_second_owner_in_this_process_is_refused(store: pyqstore.Store) -> None:
    with pytest.raises(pyqstore.StoreLocked) as caught:
        pyqstore.open(store.path)
    assert caught.value.pid == os.getpid()


def test_second_owner_in_another_process_is_refused(store: pyqstore.Store) -> None:
    code = """
import sys, pyqstore
try:
    pyqstore.open(sys.argv[1])
except pyqstore.StoreLocked as error:
    print(error.pid)
"""
    done = run_python(code, store.path)
    assert done.stdout.strip() == str(os.getpid()), done.stderr


def test_store_is_free_again_after_its_owner_was_killed(path: Path) -> None:
    code = """
import os, signal, sys, pyqstore
store = pyqstore.open(sys.argv[1])
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run_python(code, path).returncode == -9
    pyqstore.open(path, create=False).close()


def test_close_is_idempotent_and_final(path: Path) -> None:
    store = pyqstore.open(path)
    channel = store.channel()
    assert not store.closed
    assert not channel.closed
    store.close()
    store.close()
    assert store.closed
    assert channel.closed
    for call in (store.channel, store.sync, store.stats, store.queues, lambda: store.options):
        with pytest.raises(pyqstore.StoreClosed):
            call()
    with pytest.raises(pyqstore.StoreClosed):
        channel.queue_declare("q")
    with pytest.raises(pyqstore.StoreClosed):
        store.queue_status("q")
    channel.close()
    channel.close()


def test_channel_keeps_its_store_alive(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        channel = pyqstore.open(path).channel()
        assert channel.queue_declare("q").message_count == 0
        channel.close()
        del channel
        pyqstore.open(path).close()


def test_forgotten_store_and_channel_are_closed_with_a_warning(path: Path) -> None:
    store = pyqstore.open(path)
    with pytest.warns(ResourceWarning, match="unclosed channel"):
        store.channel()
    with pytest.warns(ResourceWarning, match="unclosed store"):
        del store
    pyqstore.open(path).close()


def test_store_is_closed_when_the_interpreter_exits(path: Path) -> None:
    code = """
import sys, pyqstore
store = pyqstore.open(sys.argv[1])
channel = store.channel()
channel.queue_declare("q", durable=True)
channel.basic_publish("", "q", b"late", pyqstore.Properties(delivery_mode=2))
"""
    done = run_python(code, path)
    assert (done.returncode, done.stderr) == (0, "")
    with pyqstore.open(path) as store, store.channel() as channel:
        message = get(channel, "q")
        assert message.body == b"late"


@pytest.mark.parametrize("copier", [pickle.dumps, copy.copy, copy.deepcopy])
def test_handles_cannot_be_copied(
    store: pyqstore.Store, channel: pyqstore.Channel, copier: Callable[[object], object]
) -> None:
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"x")
    message = channel.basic_get("q")
    for handle in (store, channel, message):
        with pytest.raises(TypeError, match="cannot be pickled"):
            copier(handle)


def test_queues_exchanges_and_bindings_are_listed(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("b", durable=True)
    channel.queue_declare("a", arguments={"x-note": 5})
    channel.exchange_declare("logs", "topic", durable=True, arguments={"k": [1, "two"]})
    channel.queue_bind("a", "logs", "x.#", {"n": 1})
    assert store.queues() == ["a", "b"]
    exchanges = store.exchanges()
    assert exchanges["logs"] == ("logs", "topic", True, False, False, {"k": [1, "two"]})
    assert list(exchanges) == sorted(exchanges)
    assert ("logs", "a", "x.#", {"n": 1}, False) in store.bindings()
    channel.queue_delete("a")
    assert store.queues() == ["b"]
    assert not [binding for binding in store.bindings() if binding.destination == "a"]


def test_queue_status_has_the_numbers_of_the_contract(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q")
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", "q", body)
    channel.basic_get("q")
    channel.basic_consume("q", print)
    status = store.queue_status("q")
    assert status["messages_ready"] == 2
    assert status["messages_unacked"] == 1
    assert status["consumers"] == 1
    parts = [status[name] for name in ("q1", "q2", "delta_len", "q3", "q4")]
    assert sum(parts) == 2
    states = [status[name] for name in ("alpha", "beta", "gamma", "delta")]
    assert sum(states) >= 2
    for name in ("target_ram_count", "ram_bytes", "disk_bytes", "ingress_rate", "egress_rate"):
        assert status[name] >= 0
    assert status["durable"] is False
    with pytest.raises(pyqstore.NotFound):
        store.queue_status("nowhere")
    assert not channel.closed


def test_stats_have_the_numbers_of_the_contract(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    channel.confirm_select()
    properties = pyqstore.Properties(delivery_mode=2)
    for _ in range(10):
        channel.basic_publish("", queue, b"x" * 100, properties)
    channel.wait_for_confirms(10)
    stats = store.stats()
    assert stats["messages_published"] == 10
    assert stats["messages_confirmed"] == 10
    assert stats["durable_lsn"] > 1000
    assert stats["commits"] >= 1
    assert stats["fdatasyncs"] >= 1
    assert stats["bytes_journalled"] > 1000
    assert stats["bytes_checkpointed"] >= 0
    assert stats["ram_bytes"] >= 0
    assert stats["recovery_ms"] >= 0
    assert stats["recovered_messages"] == 0
    assert stats["sync"] == "fdatasync"
    assert set(stats["commit_latency_us"]) == {"p50", "p99", "max"}
    latency = stats["commit_latency_us"]
    assert 0 <= latency["p50"] <= latency["p99"] <= latency["max"]


def test_no_sync_shows_in_stats(path: Path) -> None:
    with pyqstore.open(path, sync="none") as store:
        assert store.stats()["sync"] == "none"


def test_recovery_report_tells_what_was_found(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        assert store.recovery_report.messages == 0
        channel.queue_declare("q", durable=True)
        for _ in range(5):
            channel.basic_publish("", "q", b"x", pyqstore.Properties(delivery_mode=2))
    with pyqstore.open(path) as store:
        report = store.recovery_report
        assert isinstance(report, Mapping)
        assert report is store.recovery_report
        assert report.messages == report["messages"] == 5
        assert report["queues"] == {"q": 5}
        assert report["checkpoint_lsn"] > 0
        assert report.lost_bytes == 0
        assert report.torn_bytes == 0
        assert set(report) == {
            "records",
            "bytes",
            "torn_bytes",
            "lost_ranges",
            "lost_bytes",
            "ignored_arguments",
            "lost_segments",
            "lost_messages",
            "recovered_queues",
            "clock_ahead_s",
            "checkpoint_lsn",
            "messages",
            "queues",
            "ms",
        }
        assert report.ms == store.stats()["recovery_ms"]
        with pytest.raises(KeyError):
            report["nothing"]
        with pytest.raises(AttributeError):
            report.nothing  # noqa: B018


def test_transaction_key_is_known_also_after_reopening(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.tx_select()
        assert not store.transaction_known("k1")
        assert channel.tx_commit(key="k1")
        assert store.transaction_known("k1")
    with pyqstore.open(path) as store:
        assert store.transaction_known("k1")
        assert not store.transaction_known("k2")


def test_sync_makes_durable_without_confirms(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    channel.basic_publish("", queue, b"x", pyqstore.Properties(delivery_mode=2))
    store.sync()
    stats = store.stats()
    assert stats["durable_lsn"] == stats["appended_lsn"]


def fork_and_report(child: Callable[[], str]) -> str:
    """Run child() in a forked process and return its text."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = child()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    return text


def test_forked_child_cannot_use_the_store(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    channel.basic_publish("", queue, b"x")
    message = get(channel, queue)
    calls: dict[str, Callable[[], object]] = {
        "publish": lambda: channel.basic_publish("", queue, b"y"),
        "ack": message.ack,
        "sync": store.sync,
        "stats": store.stats,
        "channel": store.channel,
        "number": lambda: channel.next_publish_number,
    }

    def child() -> str:
        for name, call in calls.items():
            try:
                call()
                return f"{name} worked"
            except pyqstore.ForkedStore:
                pass
        channel.close()
        store.close()
        return f"closed {store.closed} {channel.closed}"

    assert fork_and_report(child) == "closed True True"
    message.ack()
    assert store.queue_status(queue)["messages_unacked"] == 0


def test_forked_child_leaves_the_lock_to_the_parent(path: Path) -> None:
    code = """
import os, sys, time, pyqstore
store = pyqstore.open(sys.argv[1])
if os.fork() == 0:
    os.close(1); os.close(2)
    time.sleep(30)
    os._exit(0)
os._exit(0)
"""
    assert run_python(code, path).returncode == 0
    pyqstore.open(path).close()  # the child lives on and holds nothing


def test_child_may_open_another_store(store: pyqstore.Store, tmp_path: Path) -> None:
    def child() -> str:
        with pyqstore.open(tmp_path / "other") as other, other.channel() as channel:
            channel.queue_declare("q", durable=True)
            return ",".join(other.queues())

    assert fork_and_report(child) == "q"


def test_closing_ends_waits_of_other_threads(store: pyqstore.Store) -> None:
    channel = store.channel()
    channel.queue_declare("q")
    channel.basic_consume("q", print)
    raised: list[BaseException] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        try:
            channel.process_events(timeout=200)
        except pyqstore.Error as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    time.sleep(0.05)  # it waits by now, most likely: the outcome is the same
    store.close()
    thread.join(100)
    assert not thread.is_alive()
    assert [type(error) for error in raised] == [pyqstore.StoreClosed]


def test_closing_while_others_publish_is_safe(path: Path) -> None:
    for _ in range(5):
        store = pyqstore.open(path)
        with store.channel() as channel:
            channel.queue_declare("q", durable=True)
        published: list[int] = []

        def publish(store: pyqstore.Store = store, published: list[int] = published) -> None:
            count = 0
            try:
                with store.channel() as channel:
                    while True:
                        channel.basic_publish("", "q", b"x", pyqstore.Properties(delivery_mode=2))
                        count += 1
            except pyqstore.StoreClosed:
                published.append(count)

        threads = [threading.Thread(target=publish) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        store.close()
        for thread in threads:
            thread.join(10)
        assert len(published) == 3
        with pyqstore.open(path) as store, store.channel() as channel:
            assert channel.queue_purge("q") == sum(published)


def test_store_serves_many_threads(store: pyqstore.Store) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with store.channel() as channel:
                name = f"q{number}"
                channel.queue_declare(name, durable=True)
                channel.confirm_select()
                publish_numbers(channel, name, 200)
                assert channel.wait_for_confirms(30)
                for count in range(200):
                    message = get(channel, name)
                    assert message.body == str(count).encode()
                    message.ack()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    assert store.stats()["messages_published"] == 1200


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_files_of_the_store_do_not_leak(path: Path) -> None:
    pyqstore.open(path).close()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pyqstore.open(path) as store, store.channel() as channel:
            channel.queue_declare("q", durable=True)
            channel.basic_publish("", "q", b"x" * 10_000, pyqstore.Properties(delivery_mode=2))
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before)


def test_close_closes_files_whoever_keeps_a_channel_or_a_message(path: Path) -> None:
    """They stayed open until the last message was forgotten, and the file system busy."""

    def files() -> int:
        count = 0
        for descriptor in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # the listing's own, or closed meanwhile
                count += str(path) in os.readlink(f"/proc/self/fd/{descriptor}")
        return count

    store = pyqstore.open(path)
    connection = store.connection()
    channels = [store.channel(), connection.channel()]
    channels[0].queue_declare("q", durable=True)
    channels[0].basic_publish("", "q", b"small")
    channels[0].basic_publish("", "q", b"large" * 4096, pyqstore.Properties(delivery_mode=2))
    kept = [channels[0].basic_get("q"), channels[0].get_batch("q")]
    assert files() > 0
    store.close()
    assert files() == 0
    assert kept[0] is not None
    assert kept[0].body == b"small"
    for channel in channels:
        with pytest.raises(pyqstore.StoreClosed):
            channel.basic_get("q")

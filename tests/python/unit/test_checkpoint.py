"""Checkpoints, queue modes, the progress of opening: the Python face of them, on real files."""

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import pyqstore

from ..support import PERSISTENT, bodies, wait_until


def publish(store: pyqstore.Store, queue: str, count: int, size: int = 100) -> None:
    with store.channel() as channel:
        channel.queue_declare(queue, durable=True)
        channel.confirm_select()
        for number in range(count):
            channel.basic_publish("", queue, b"%0*d" % (size, number), PERSISTENT)
        assert channel.wait_for_confirms(30)


def test_opening_begins_at_the_checkpoint(path: Path, tmp_path: Path) -> None:
    with pyqstore.open(path, journal_file_bytes="64KiB", checkpoint_interval=0) as store:
        publish(store, "q", 1000)
        before = store.stats()
        assert before["checkpoints"] == 0
        store.checkpoint()
        stats = store.stats()
        assert stats["checkpoints"] == 1
        assert 0 < stats["checkpoint_lsn"] <= stats["durable_lsn"]
        assert stats["bytes_checkpointed"] > before["bytes_checkpointed"]
        publish(store, "q", 3)
        shutil.copytree(path, tmp_path / "copy")
    with pyqstore.open(tmp_path / "copy") as store, store.channel() as channel:
        report = store.recovery_report
        assert report["checkpoint_lsn"] == stats["checkpoint_lsn"]
        assert report["messages"] == 1003
        assert report["queues"] == {"q": 1003}
        assert 3 <= report["records"] < 100
        assert [int(body) for body in bodies(channel, "q")] == [*range(1000), *range(3)]


def test_checkpoint_is_made_after_so_many_bytes(path: Path) -> None:
    options: dict[str, Any] = {"journal_file_bytes": "64KiB", "checkpoint_interval": None}
    with pyqstore.open(path, checkpoint_bytes="64KiB", **options) as store:
        publish(store, "q", 2000)
        wait_until(lambda: store.stats()["checkpoints"] > 0)


def test_checkpoint_is_made_after_so_much_time(path: Path) -> None:
    with pyqstore.open(path, checkpoint_interval=0.05) as store:
        publish(store, "q", 10)
        wait_until(lambda: store.stats()["checkpoints"] > 0)


def test_no_checkpoint_is_made_unasked_when_both_are_off(path: Path) -> None:
    with pyqstore.open(path, checkpoint_bytes=0, checkpoint_interval=0) as store:
        publish(store, "q", 1000)
        assert store.stats()["checkpoints"] == 0
    with pyqstore.open(path, checkpoint_bytes=0, checkpoint_interval=0) as store:
        assert store.recovery_report["checkpoint_lsn"] == 0
        assert store.recovery_report["messages"] == 1000


def test_checkpoint_of_a_closed_store_is_refused(path: Path) -> None:
    store = pyqstore.open(path)
    store.close()
    with pytest.raises(pyqstore.StoreClosed):
        store.checkpoint()
    with pytest.raises(pyqstore.StoreClosed):
        store.set_queue_mode("q", "lazy")


def test_other_threads_run_while_a_checkpoint_is_made(path: Path) -> None:
    with pyqstore.open(path, checkpoint_interval=0) as store:
        publish(store, "q", 20_000)
        thread = threading.Thread(target=store.checkpoint)
        thread.start()
        publish(store, "other", 10)
        thread.join(30)
        assert store.stats()["checkpoints"] == 1


def crashed(path: Path, tmp_path: Path) -> Path:
    """A store whose journal holds a few files' worth of messages."""
    with pyqstore.open(path, journal_file_bytes="64KiB", checkpoint_bytes=0) as store:
        publish(store, "q", 5000)
        shutil.copytree(path, tmp_path / "copy")
    return tmp_path / "copy"


def test_progress_of_opening_is_told(path: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    copy = crashed(path, tmp_path)
    with pyqstore.open(copy, progress=lambda *numbers: told.append(numbers)) as store:
        assert store.recovery_report["messages"] == 5000
        assert "progress" not in store.options
    assert told
    done = [number for number, _ in told]
    assert done == sorted(done)
    assert all(0 <= number <= total for number, total in told)
    assert told[-1][0] == told[-1][1]


def test_what_progress_raises_comes_out_and_leaves_the_store_whole(
    path: Path, tmp_path: Path
) -> None:
    copy = crashed(path, tmp_path)
    calls = 0

    def progress(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        raise KeyboardInterrupt(f"{done} of {total}")

    with pytest.raises(KeyboardInterrupt, match=r"\d+ of \d+"):
        pyqstore.open(copy, progress=progress)
    assert calls == 1
    with pyqstore.open(copy) as store:  # not locked
        assert store.recovery_report["messages"] == 5000


def test_progress_may_use_the_library(path: Path, tmp_path: Path) -> None:
    copy = crashed(path, tmp_path)
    locked = []

    def progress(done: int, total: int) -> None:
        try:
            pyqstore.open(copy)
        except pyqstore.StoreLocked as error:
            locked.append(error)

    pyqstore.open(copy, progress=progress).close()
    assert locked


def test_queue_mode_by_argument(store: pyqstore.Store, channel: pyqstore.Channel) -> None:
    channel.queue_declare("lazy", arguments={"x-queue-mode": "lazy"})
    channel.queue_declare("default", arguments={"x-queue-mode": "default"})
    channel.queue_declare("plain")
    modes = {name: store.queue_status(name)["lazy"] for name in store.queues()}
    assert modes == {"lazy": True, "default": False, "plain": False}


@pytest.mark.parametrize("wrong", ["eager", "", 1, None, True])
def test_other_queue_modes_are_refused(store: pyqstore.Store, wrong: object) -> None:
    with store.channel() as channel:
        with pytest.raises(pyqstore.PreconditionFailed, match=r"x-queue-mode.*'lazy'"):
            channel.queue_declare("q", arguments={"x-queue-mode": wrong})
        assert channel.closed
    assert store.queues() == []


def test_queue_mode_is_switched_live_and_kept(path: Path) -> None:
    with pyqstore.open(path) as store:
        publish(store, "q", 100)
        store.set_queue_mode("q", "lazy")
        status = store.queue_status("q")
        assert status["lazy"] is True
        assert status["q1"] == status["q2"] == status["q4"] == 0
        publish(store, "q", 100)
        status = store.queue_status("q")
        assert status["q1"] == status["q2"] == status["q4"] == 0
        assert status["messages_ready"] == 200
    with pyqstore.open(path) as store, store.channel() as channel:
        assert store.queue_status("q")["lazy"] is True
        store.set_queue_mode("q", "default")
        assert store.queue_status("q")["lazy"] is False
        assert [int(body) for body in bodies(channel, "q")] == [*range(100), *range(100)]
    with pyqstore.open(path) as store:
        assert store.queue_status("q")["lazy"] is False


def test_queue_mode_needs_a_queue_and_a_known_word(store: pyqstore.Store, queue: str) -> None:
    with pytest.raises(pyqstore.NotFound, match="nowhere"):
        store.set_queue_mode("nowhere", "lazy")
    with pytest.raises(ValueError, match="mode must be 'default' or 'lazy', not 'eager'"):
        store.set_queue_mode(queue, "eager")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="mode must be str"):
        store.set_queue_mode(queue, True)  # type: ignore[arg-type]


def test_stats_and_status_have_the_numbers_of_paging(store: pyqstore.Store, queue: str) -> None:
    publish(store, queue, 10, 5000)
    stats = store.stats()
    for name in (
        "checkpoints",
        "checkpoint_lsn",
        "segments_written",
        "messages_paged_out",
        "messages_paged_in",
        "recovered_lsn",
    ):
        assert stats[name] >= 0
    assert stats["message_files"] == 1
    assert 50_000 <= stats["message_bytes_live"] <= stats["message_bytes_total"]


def test_closing_after_a_large_transaction_takes_time_in_proportion(path: Path) -> None:
    """Each of its messages has memory of its own, which the checkpoint walks: once, not as often as
    there are messages, which would take minutes."""
    count = 100_000
    store = pyqstore.open(path)
    with store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.tx_select()
        for _ in range(count):
            channel.basic_publish("", "q", b"x", PERSISTENT)
        channel.tx_commit()
    began = time.monotonic()
    store.close()
    assert time.monotonic() - began < 60
    with pyqstore.open(path) as again:
        assert again.queue_status("q")["messages_ready"] == count

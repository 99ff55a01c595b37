"""Staged files that a store adopts while other threads adopt, publish, make checkpoints, or replace
the files."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore

from ..adopting import STREAM, bodies, declare, drained, named, write


def test_threads_that_adopt_with_one_key_adopt_once(stage: Path, store: pyqstore.Store) -> None:
    declare(store, "log", STREAM)
    write(stage / "0.qsb", 0, 500, exchange="e")
    done: list[bool] = []
    start = threading.Barrier(6)

    def adopt() -> None:
        start.wait()
        done.append(store.adopt(stage, "key").committed)

    threads = [threading.Thread(target=adopt) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False] * 5 + [True]
    assert bodies(store, "log") == named(500)


def test_publishers_and_adopters_of_one_stream(stage: Path, tmp_path: Path) -> None:
    for number in range(10):
        write(stage / f"{number}.qsb", 100 * number, 100, exchange="e")
    stop = threading.Event()
    published = 0

    def publish() -> None:
        nonlocal published
        with opened.channel() as channel:
            while not stop.is_set():
                channel.basic_publish("e", "mine", b"mine")
                published += 1

    with pyqstore.open(tmp_path / "store") as opened:
        declare(opened, "log", STREAM)
        thread = threading.Thread(target=publish)
        thread.start()
        for number in range(10):
            assert opened.adopt([stage / f"{number}.qsb"], f"key {number}").committed
        stop.set()
        thread.join()
        opened.sync()
        found = bodies(opened, "log")
        assert [body for body in found if body != b"mine"] == named(1000)
        assert len(found) == 1000 + published
    with pyqstore.open(tmp_path / "store") as opened:
        assert bodies(opened, "log") == found


def test_a_checkpoint_while_a_stream_adopts_does_not_abort_the_process(
    stage: Path, store: pyqstore.Store
) -> None:
    declare(store, "log", STREAM)
    write(stage / "0.qsb", 0, 5, exchange="e")
    stop = threading.Event()

    def checkpoint() -> None:
        while not stop.is_set():
            store.checkpoint()

    thread = threading.Thread(target=checkpoint)
    thread.start()
    with store.channel() as channel:
        for number in range(40):  # of many names, so that linking takes its time
            channel.basic_publish("e", "mine", b"mine")
            assert store.adopt([stage / "0.qsb"] * 100, f"key {number}").committed
    stop.set()
    thread.join()
    assert bodies(store, "log") == ([b"mine"] + named(5) * 100) * 40


@pytest.mark.parametrize("kind", ["symbolic link", "pipe"])
def test_a_file_that_is_replaced_while_it_is_adopted_does_not_fail_the_store(
    stage: Path, tmp_path: Path, store: pyqstore.Store, kind: str
) -> None:
    declare(store, "log", STREAM)
    write(stage / "0000.qsb", 0, 10, exchange="e")
    last = stage / "1999.qsb"
    for number in range(1, 2000):
        shutil.copy(stage / "0000.qsb", stage / f"{number:04}.qsb")
    if kind == "pipe":
        os.mkfifo(tmp_path / "other")
    else:
        os.symlink(stage / "0000.qsb", tmp_path / "other")

    def replace() -> None:
        end = time.monotonic() + 30
        while not any((tmp_path / "store" / "streams").iterdir()) and time.monotonic() < end:
            time.sleep(0.001)
        os.rename(tmp_path / "other", last)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        rows_there = 20_000 if store.adopt(stage, "key").committed else 0
    except (pyqstore.Error, OSError):
        rows_there = 0
    thread.join()
    with store.channel() as channel:
        channel.basic_publish("e", "k", b"mine")
    store.sync()
    assert bodies(store, "log") == named(10) * (rows_there // 10) + [b"mine"]


def test_adopting_into_a_queue_a_file_that_is_replaced_by_another_one_fails(
    stage: Path, tmp_path: Path, store: pyqstore.Store
) -> None:
    declare(store, "all")
    large = pa.record_batch({"body": pa.array([b"large" * 200] * 64_000, pa.binary())})
    with pyqstore.StagedWriter(stage / "0.qsb", exchange="e", routing_key="k") as writer:
        writer.write_batch(large)
    write(stage / "1.qsb", 0, 10, exchange="e")
    write(tmp_path / "stage" / "other", 0, 33, exchange="e")
    begun = store.stats().ram_bytes
    adopted: list[object] = []

    def adopt() -> None:
        try:
            adopted.append(store.adopt(stage, "key"))
        except pyqstore.StoreCorrupt as error:
            adopted.append(error)

    thread = threading.Thread(target=adopt)
    thread.start()
    while thread.is_alive() and store.stats().ram_bytes < begun + (1 << 20):
        time.sleep(0)  # the first file is being published
    os.replace(stage / "other", stage / "1.qsb")
    thread.join()
    if isinstance(adopted[0], pyqstore.StoreCorrupt):
        assert "1.qsb" in str(adopted[0])
        assert not store.transaction_known("key")
        assert drained(store, "all") == []
    else:  # the file had been read
        assert adopted == [pyqstore.Adoption(True, 64_010, 0, 2, 0)]
        assert len(drained(store, "all")) == 64_010

"""Staged files that a store adopts, as files: names, folders, file systems, links, and damage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import pyqstore

from ..adopting import STREAM, bodies, declare, drained, named, write
from ..support import run_python


def test_a_file_is_adopted_as_often_as_it_is_given(stage: Path, tmp_path: Path) -> None:
    write(stage / "0.qsb", 0, 500, exchange="e")
    with pyqstore.open(tmp_path / "store") as store:
        declare(store, "log", STREAM)
        assert store.adopt([stage / "0.qsb"] * 2, "a").linked == 2
        assert store.adopt([stage / "0.qsb"], "b").linked == 1
        assert bodies(store, "log") == named(500) * 3
    with pyqstore.open(tmp_path / "store") as store:
        assert bodies(store, "log") == named(500) * 3
        store.forget_transaction("b")
        assert store.adopt([stage / "0.qsb"], "b").committed


def test_files_of_more_folders_than_descriptors_are_adopted(stage: Path, tmp_path: Path) -> None:
    code = """
import resource, sys, pyqstore
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with pyqstore.open(sys.argv[1]) as store:
    print(store.adopt(sys.argv[2:], "key").linked)
"""
    paths = []
    for number in range(100):
        (stage / str(number)).mkdir(mode=0o700)
        paths.append(str(stage / str(number) / "0.qsb"))
        write(Path(paths[-1]), 10 * number, 10, exchange="e")
    with pyqstore.open(tmp_path / "store") as store:
        declare(store, "log", STREAM)
    told = run_python(code, tmp_path / "store", *paths, check=True)
    assert told.stdout == "100\n"
    with pyqstore.open(tmp_path / "store") as store:
        assert bodies(store, "log") == named(1000)


def test_a_long_name_is_adopted_and_does_not_keep_the_others_out(
    stage: Path, store: pyqstore.Store
) -> None:
    declare(store, "log", STREAM)
    write(stage / ("n" * 230 + ".qsb"), 10, 10, exchange="e")
    os.link(stage / ("n" * 230 + ".qsb"), stage / ("o" * 251 + ".qsb"))
    write(stage / "0.qsb", 0, 10, exchange="e")
    assert store.adopt(stage, "key").linked == 3
    assert bodies(store, "log") == named(20) + named(10, 10)


def test_a_folder_that_others_can_write_to_is_refused_in_words_about_folders(
    stage: Path, store: pyqstore.Store
) -> None:
    write(stage / "0.qsb", 0, 10, exchange="e")
    stage.chmod(0o777)
    with pytest.raises(ValueError, match="can be written by other users") as raised:
        store.adopt(stage, "key")
    assert "store directory" not in str(raised.value)
    with pytest.raises(ValueError, match="can be written by other users"):
        pyqstore.StagedWriter(stage / "1.qsb")


def elsewhere(path: Path) -> Path:
    """A new directory on another file system than the path's."""
    for place in ("/dev/shm", "/var/tmp", str(Path.home()), os.getcwd(), "/run"):
        if os.access(place, os.W_OK) and os.stat(place).st_dev != os.stat(path).st_dev:
            folder = Path(place) / f"pyqstore-{os.getpid()}"
            folder.mkdir(mode=0o700)
            return folder
    missing = pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip
    return missing("there is no other file system to write to")


def test_another_device_is_published_from(tmp_path: Path) -> None:
    folder = elsewhere(tmp_path)
    try:
        write(folder / "0.qsb", 0, 500, exchange="e")
        with pyqstore.open(tmp_path / "store") as store:
            declare(store, "log", STREAM)
            assert store.adopt(folder, "key") == pyqstore.Adoption(True, 500, 0, 1, 0)
            assert bodies(store, "log") == named(500)
    finally:
        for name in os.listdir(folder):
            os.unlink(folder / name)
        folder.rmdir()


def test_retention_removes_adopted_files(stage: Path, tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "store") as store:
        declare(store, "log", {**STREAM, "x-max-length-bytes": 60_000})
        for number in range(6):
            write(stage / f"{number}.qsb", 1000 * number, 1000, exchange="e")
            store.adopt([stage / f"{number}.qsb"], f"key {number}")
        store.checkpoint()
        store.checkpoint()
        log = store.stream("log")
        assert log.first > 0
        assert bodies(store, "log") == named(6000)[log.first :]
    assert len(os.listdir(stage)) == 6
    assert len(os.listdir(tmp_path / "store" / "streams")) < 6
    assert pyqstore.verify(tmp_path / "store").damages == 0


def test_a_file_that_is_not_whole_is_refused(stage: Path, store: pyqstore.Store) -> None:
    declare(store, "log", STREAM)
    path = stage / "0.qsb"
    write(path, 0, 3000, exchange="e")
    whole = path.read_bytes()
    for size in (0, 100, 4096, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(pyqstore.StoreCorrupt, match=r"0\.qsb"):
            store.adopt(stage, "key")
        with pytest.raises(pyqstore.StoreCorrupt):
            pyqstore.check_staged(path)
    path.write_bytes(whole + b"more")
    with pytest.raises(pyqstore.StoreCorrupt):
        store.adopt(stage, "key")
    assert bodies(store, "log") == []
    assert not store.transaction_known("key")
    path.write_bytes(whole)
    assert store.adopt(stage, "key").committed


def test_damage_of_an_adopted_file_costs_its_block_alone(stage: Path, tmp_path: Path) -> None:
    path = stage / "0.qsb"
    write(path, 0, 3000, exchange="e")
    at = path.read_bytes().index(b"body 1500")
    with pyqstore.open(tmp_path / "store") as store:
        declare(store, "log", STREAM)
        store.adopt(stage, "key")
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(b"B")
    verified = pyqstore.verify(tmp_path / "store")
    assert verified.damages == 1
    assert verified.damage[0].path == "streams/0000000000000001-0000000000000000.str"
    with pyqstore.open(tmp_path / "store") as store:
        with pytest.raises(pyqstore.StoreCorrupt, match=r"streams/.*\.str"):
            bodies(store, "log")
        assert bodies(store, "log", stop=1000) == named(1000)
        assert bodies(store, "log", start=2000) == named(1000, 2000)
    with pytest.raises(pyqstore.StoreCorrupt):
        pyqstore.check_staged(path)
    with pyqstore.open(tmp_path / "other") as store:  # where each block is read, nothing changes
        declare(store, "all")
        with pytest.raises(pyqstore.StoreCorrupt):
            store.adopt(stage, "key")
        assert drained(store, "all") == []
        assert not store.transaction_known("key")


def test_a_store_in_memory_reads_no_files(stage: Path) -> None:
    write(stage / "0.qsb", 0, 10, exchange="e")
    with pyqstore.open(":memory:") as store:
        declare(store, "log", STREAM)
        with pytest.raises((FileNotFoundError, pyqstore.Error)):
            store.adopt(stage, "key")

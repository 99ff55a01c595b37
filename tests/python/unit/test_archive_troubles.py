"""Archives in trouble: what fails in their threads, targets that are slow or that two write to,
documents that are damaged, tools that do not answer; and batches that are larger than a part."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore import backups
from pyqstore.archive_reports import archive_of
from pyqstore.archives import Choices, base, bases, prune, restore, restoring, running
from pyqstore.archives.keeping import made_of, read_base
from pyqstore.archives.parts import Head, Part, Piece
from pyqstore.archives.reading import BrokenJournal, JournalReader
from pyqstore.archives.writing import StoreWriter
from pyqstore.backups import Target
from pyqstore.control import archiving as control
from pyqstore.serve import archiving as serving

from ..archiving import OPTIONS, QUICK, Work, archived, check, held
from ..support import PERSISTENT, wait_until

_MS = timedelta(milliseconds=1)
NONE = timedelta(0)


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(str(tmp_path / "target"), create=True)


class Failing(Target):
    """Puts of what begins with ``names`` fail with ``error`` so many ``times``."""

    names = "parts"
    times = 0
    error: BaseException = MemoryError("no memory")

    def put(self, name: str, parts: Iterable[bytes]) -> None:
        if name.startswith(self.names) and self.times > 0:
            self.times -= 1
            raise self.error
        super().put(name, parts)


def put(store: pyqstore.Store, body: bytes) -> None:
    store.queue("q").put(body)
    store.sync()


def two_bases(tmp_path: Path, target: Target) -> list[str]:
    for number in range(2):
        with pyqstore.open(tmp_path / "store") as store, archived(store, target) as now:
            put(store, b"%d" % number)
            now.wait_for_all(store)
    return bases(target)


# ---- threads ----


def test_threads_go_on_after_any_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Failing(str(tmp_path / "target"), create=True)
    target.times = 2
    monkeypatch.setattr(base, "_PRUNE_AGAIN_S", 1.0)
    pruned: list[float] = []

    def failing(*_arguments: Any) -> list[str]:
        pruned.append(time.monotonic())
        if len(pruned) == 1:
            raise RuntimeError("slow down")
        return []

    monkeypatch.setattr(base, "prune", failing)
    with (
        pyqstore.open(tmp_path / "store") as store,
        archived(store, target, Choices(part_seconds=0.1, keep_days=1)) as now,
    ):
        wait_until(lambda: now.last.error is not None)
        assert now.last.error == "what is old cannot be removed: slow down"
        put(store, b"x")
        wait_until(lambda: now.last.error == "no memory")
        now.wait_for_all(store)
        wait_until(lambda: now.last.error is None)
    assert len(pruned) == 2
    assert now.last.restarts == 0


def test_lag_counts_from_the_last_moment_that_can_be_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_ANEW_S", 0.3)
    target = Failing(str(tmp_path / "target"), create=True)
    target.names, target.error = "bases/", OSError("away")
    with pyqstore.open(tmp_path / "store") as store, archived(store, target) as now:
        put(store, b"x")
        now.wait_for_all(store)
        target.times = 1_000
        store._keep_end()  # as a checkpoint that gives it up
        begin = time.monotonic()
        wait_until(lambda: now.last.restarts == 1)
        for _ in range(10):
            put(store, b"y")
            time.sleep(0.1)
        report = archive_of(store)
        assert report is not None
        assert not report.restorable
        assert report.lag_seconds >= time.monotonic() - begin - 0.5
        assert now.last.restarts == 1
        target.times = 0
        now.wait_for_all(store)
        assert now.last.lag_seconds < 0.5


def test_tool_that_does_not_answer_keeps_no_archive_from_its_work(
    tmp_path: Path, target: Target
) -> None:
    go = threading.Event()

    class Stopped:
        def ask(self, _report: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
            go.wait()
            return {"stop": True}, b""

    arguments = {"to": target.place, "choices": {"part_seconds": 0.1}}
    with pyqstore.open(tmp_path / "store") as store:
        told: list[dict[str, Any]] = []
        thread = threading.Thread(
            target=lambda: told.append(
                control.archive(store, arguments, Stopped())  # type: ignore[arg-type]
            )
        )
        thread.start()
        wait_until(lambda: (report := archive_of(store)) is not None and report.restorable)
        put(store, b"x")
        wait_until(lambda: (report := archive_of(store)) is not None and report.parts == 1)
        go.set()
        thread.join(20)
    assert told[0]["parts"] == 1


# ---- servers ----


def test_server_does_not_wait_for_a_target_that_stalls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go = threading.Event()

    class Stalled(Target):
        def listed(self, folder: str) -> dict[str, datetime]:
            go.wait()
            return super().listed(folder)

    two_bases(tmp_path, Target(str(tmp_path / "target"), create=True))
    monkeypatch.setattr(backups, "Target", Stalled)
    monkeypatch.setattr(serving, "_FIRST_S", 0.2)
    with pyqstore.open(tmp_path / "other") as store:
        with serving.archived(store, str(tmp_path / "target"), None):
            report = archive_of(store)
            assert report is not None
            assert not report.restorable
            go.set()
            wait_until(lambda: "it has ended: " in caplog.text)
        report = archive_of(store)
        assert report is not None
        assert not report.restorable
        assert "has the archive of another store" in str(report.error)
        time.sleep(0.1)
        again = archive_of(store)
        assert again is not None
        assert again.lag_seconds > report.lag_seconds


# ---- targets ----


def test_second_archive_of_a_target_ends_the_first(
    tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_CHECK_S", 0.1)
    with pyqstore.open(tmp_path / "store") as store, archived(store, target) as first:
        put(store, b"common")
        first.wait_for_all(store)
        restore(target, tmp_path / "copy")
        with pyqstore.open(tmp_path / "copy") as copy, archived(copy, target):
            wait_until(lambda: bool(first.ended))
            assert isinstance(first.ended[0], FileExistsError)
            assert "another archive of store" in str(first.ended[0])
            report = archive_of(store)
            assert report is not None
            assert not report.restorable
            assert "another archive of store" in str(report.error)


def test_snapshot_that_a_killed_process_left_is_removed(tmp_path: Path, target: Target) -> None:
    with pyqstore.open(tmp_path / "store") as store:
        status = (tmp_path / "store").stat()
        left = tmp_path / f".store.{status.st_dev:x}-{status.st_ino:x}.{'0' * 16}.archive"
        other = tmp_path / f".store.{status.st_dev:x}-{status.st_ino + 1:x}.{'0' * 16}.archive"
        left.mkdir()
        other.mkdir()
        with archived(store, target):
            assert not left.exists()
        assert other.exists()


# ---- documents ----


def test_damaged_document_of_a_base_does_not_stop_what_others_have(
    tmp_path: Path, target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    names = two_bases(tmp_path, target)
    made = read_base(target, names[1]).made
    assert made_of(names[1]) == made
    document = tmp_path / f"target/bases/{names[1]}.json"
    whole = document.read_bytes()
    document.write_bytes(whole[:-5])
    restore(target, tmp_path / "earlier", made - _MS)
    assert held(tmp_path / "earlier")["q"] == [b"0"]
    assert names[1] not in caplog.text
    restore(target, tmp_path / "again")
    assert held(tmp_path / "again")["q"] == [b"0"]
    assert f"{names[1]}.json is no base's document" in caplog.text
    with pytest.raises(ValueError, match="is no base's document"):
        prune(target, 0, NONE)
    with pyqstore.open(tmp_path / "store") as store, archived(store, target) as now:
        now.wait_for_all(store)
    assert prune(target, 0, NONE) == names
    restore(target, tmp_path / "last")
    assert held(tmp_path / "last")["q"] == [b"0", b"1"]


def test_base_that_comes_while_others_are_removed_keeps_its_files(
    tmp_path: Path, target: Target
) -> None:
    names = two_bases(tmp_path, target)
    document = tmp_path / f"target/bases/{names[1]}.json"
    whole = document.read_bytes()
    document.unlink()

    class Late(Target):
        def remove(self, names: list[str]) -> None:
            document.write_bytes(whole)
            super().remove(names)

    assert prune(Late(target.place), 0, NONE) == []
    restore(target, tmp_path / "again")
    assert held(tmp_path / "again")["q"] == [b"0", b"1"]


def test_restore_looks_at_the_parts_once(tmp_path: Path, target: Target) -> None:
    two_bases(tmp_path, target)
    seen: list[str] = []

    class Counted(Target):
        def listed(self, folder: str) -> dict[str, datetime]:
            seen.append(folder)
            return super().listed(folder)

        def sizes(self, folder: str) -> dict[str, int]:
            seen.append(folder)
            return super().sizes(folder)

    restore(Counted(target.place), tmp_path / "again")
    assert len([folder for folder in seen if folder.startswith("parts")]) == 1


# ---- what is read and written ----


def test_bodies_of_a_large_transaction_are_in_several_parts(tmp_path: Path, target: Target) -> None:
    choices = Choices(part_seconds=0.1, part_bytes=200_000)
    bodies = [b"%d " % number + os.urandom(50_000) for number in range(60)]
    with pyqstore.open(tmp_path / "store") as store, archived(store, target, choices) as now:
        channel = store.channel()
        channel.queue_declare("q", durable=True)
        with channel.transaction():
            for body in bodies:
                channel.basic_publish("", "q", body, PERSISTENT)
        now.wait_for_all(store)
    parts = list((tmp_path / "target/parts").rglob("*.part"))
    assert len(parts) > 10
    assert max(each.stat().st_size for each in parts) < 300_000
    restore(target, tmp_path / "again")
    assert held(tmp_path / "again")["q"] == bodies
    assert prune(target, 0, NONE) == []
    restore(target, tmp_path / "after")
    assert held(tmp_path / "after")["q"] == bodies


@pytest.mark.parametrize("seed", [1, 2])
def test_each_base_has_the_parts_that_it_needs_where_bodies_come_before_their_blocks(
    tmp_path: Path, target: Target, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_LOOK_S", 0.01)
    choices = Choices(part_seconds=0.1, part_bytes=30_000, base_hours=0.05 / 3600)
    with pyqstore.open(tmp_path / "store", **OPTIONS) as store:
        work = Work(store, seed)
        with archived(store, target, choices) as now:
            while now.last.bases < 5:
                work.publish_large()
                work.note()
                work.go(3)
            now.wait_for_all(store)
        work.note()  # a base's checkpoint may have dropped what the stream does not keep
        assert now.last.restarts == 0
    names = bases(target)
    moments = [read_base(target, each).made for each in names]
    for number, when in enumerate((*moments[1:], datetime.now(UTC))):
        path = tmp_path / f"again-{number}"
        check(path, restore(target, path, when), work)
    prune(target, 0, NONE)
    check(tmp_path / "last", restore(target, tmp_path / "last"), work)


def test_block_that_goes_on_behind_its_file_is_a_broken_journal(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "store") as store:
        reader = JournalReader(store, str(tmp_path / "store"), 1 << 30)
        put(store, b"x")
        part = Part(reader.uuid, "", Head(1, reader.lsn, 0), "", reader.lsn)
        path = tmp_path / "store" / reader._path
        with path.open("r+b") as file:
            file.seek(reader._at + 36)
            right = file.read(4)
            file.seek(reader._at + 36)
            file.write(struct.pack("<I", 1 << 27))
        try:
            reader.read(part, reader.look(), 1 << 20)  # there is more of it, it seems
            with pytest.raises(BrokenJournal):
                reader.read(part, reader.look(), 1 << 20)
        finally:
            with path.open("r+b") as file:
                file.seek(reader._at + 36)
                file.write(right)
            reader.close()


def test_store_that_ends_before_what_was_archived_is_refused(
    tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pyqstore.open(tmp_path / "store") as store, archived(store, target, QUICK) as now:
        for number in range(3):
            put(store, b"%d" % number)
            now.wait_for_all(store)

    parts = len(list((tmp_path / "target/parts").rglob("*.part")))

    class Losing(StoreWriter):
        def write(self, part: Part, data: memoryview, upto: int) -> None:
            self._losing = part.head.number == parts
            super().write(part, data, upto)

        def _write_piece(self, fd: int, piece: Piece, content: memoryview) -> None:
            if not self._losing:
                super()._write_piece(fd, piece, content)

    monkeypatch.setattr(restoring, "_AT_ONCE", 1)

    monkeypatch.setattr(restoring, "StoreWriter", Losing)
    with pytest.raises(ValueError, match=r"a store that ends at LSN \d+ and not at \d+"):
        restore(target, tmp_path / "again")
    assert not (tmp_path / "again").exists()

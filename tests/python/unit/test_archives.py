"""Archives in a directory: stores at work that are restored at many moments and compared with what
they had then; targets that fail, tear, delay and repeat what is put; what is missing or damaged."""

from __future__ import annotations

import os
import random
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore
from pyqstore.archive_reports import archive_of
from pyqstore.archives import Choices, archive, base, bases, prune, restore, running, sending
from pyqstore.archives.keeping import read_base
from pyqstore.archives.moments import Moments
from pyqstore.archives.reading import JournalReader
from pyqstore.backups import Target

from ..adopting import STREAM, declare, write
from ..archiving import OPTIONS, Faulty, Work, archived, check, held
from ..support import wait_until

_MS = timedelta(milliseconds=1)
BIG = b"x" * 20_000
RESTORES = [20, pytest.param(200, marks=pytest.mark.slow)]
SEED = int(os.environ.get("QS_ARCHIVE_SEED", "1"))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """More moments are noted in less time."""
    monkeypatch.setattr(running, "_LOOK_S", 0.01)


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(str(tmp_path / "target"), create=True)


@pytest.mark.parametrize("restores", RESTORES)
def test_restored_stores_are_what_the_store_was_at_these_moments(
    tmp_path: Path, target: Target, restores: int
) -> None:
    with pyqstore.open(tmp_path / "store", **OPTIONS) as store:
        work = Work(store, SEED)
        work.go(30)
        with archived(store, target) as now:
            begin = len(work.states)
            work.go(15 * restores)
            now.wait_for_all(store)
    report = now.last
    assert report.restarts == 0
    assert report.damages == 0
    chosen = random.Random(SEED)
    places = set()
    for number in range(restores):
        path = tmp_path / f"again-{number}"
        when = chosen.choice(work.states[begin:]).time if number else None
        restored = restore(target, path, when)
        assert when is None or restored.moment <= when
        check(path, restored, work)
        places.add(restored.lsn)
    assert len(places) > restores / 2


# ---- targets with faults ----


@pytest.mark.parametrize("seed", [1, 2])
def test_target_that_fails_tears_delays_and_repeats_has_all_in_the_end(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_WAIT_S", 0.01)
    monkeypatch.setattr(base, "_AGAIN_S", 0.01)
    monkeypatch.setattr(base, "_AGAIN_MOST_S", 0.02)
    target = Faulty(str(tmp_path / "target"), seed)
    with pyqstore.open(tmp_path / "store", **OPTIONS) as store:
        work = Work(store, seed)
        work.go(10)
        with archived(store, target, Choices(part_seconds=0.1, part_bytes=50_000)) as now:
            work.go(100)
            now.wait_for_all(store)
        assert now.last.restarts == 0
    restored = restore(target, tmp_path / "again")
    assert restored.lsn >= work.states[-1].lsn
    check(tmp_path / "again", restored, work)
    assert {"before", "behind", "torn", "slow", "late"} <= set(target.counts)


def test_target_that_is_away_holds_back_no_publisher_and_no_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_WAIT_MOST_S", 0.1)
    target = Faulty(str(tmp_path / "target"), SEED)
    target.random.choice = lambda _faults: "none"  # type: ignore[method-assign]
    choices = Choices(part_seconds=0.1, part_bytes=10_000, lag_bytes=500_000)
    with pyqstore.open(tmp_path / "store", **OPTIONS, embed_below="1MiB") as store:
        work = Work(store, SEED)
        with archived(store, target, choices) as now:
            work.go(5)
            now.wait_for_all(store)
            before = work.states[-1]
            target.is_away = True
            for _ in range(100):
                work.publish(20_000)
                work.note()
                store.checkpoint()
            wait_until(lambda: now.last.restarts > 0)
            assert now.last.error == "it is away"
            assert not now.last.restorable
            journal = sum(each.stat().st_size for each in (tmp_path / "store/journal").iterdir())
            assert journal < 1_500_000
            target.is_away = False
            work.go(5)
            now.wait_for_all(store)
            assert now.last.error is None
    assert "it begins anew, with another base: more of the journal waited" in caplog.text
    restored = restore(target, tmp_path / "again")
    check(tmp_path / "again", restored, work)
    restored = restore(target, tmp_path / "earlier", before.time + timedelta(milliseconds=100))
    check(tmp_path / "earlier", restored, work)


def test_lag_is_told_while_the_target_is_away_and_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_LATE_S", 0.3)
    monkeypatch.setattr(sending, "_WAIT_MOST_S", 0.1)
    target = Faulty(str(tmp_path / "target"), SEED)
    target.random.choice = lambda _faults: "none"  # type: ignore[method-assign]
    with pyqstore.open(tmp_path / "store") as store:
        queue = store.queue("q")
        with archived(store, target) as now:
            now.wait_for_all(store)
            assert now.last.lag_seconds == 0
            target.is_away = True
            queue.put(BIG)
            store.sync()
            wait_until(lambda: now.last.lag_seconds > 0.5)
            assert now.last.lag_bytes > 0
            report = archive_of(store)
            assert report is not None
            assert report.lag_seconds > 0
            target.is_away = False
            now.wait_for_all(store)
            assert now.last.lag_seconds == 0
    assert caplog.text.count("is not archived yet") == 1
    assert caplog.text.count("a part could not be sent") == 1
    assert archive_of(store) is None


# ---- damage ----


def filled(tmp_path: Path, target: Target) -> list[Path]:
    """Some parts, the first one first; each has a message more."""
    with pyqstore.open(tmp_path / "store") as store:
        queue = store.queue("q")
        with archived(store, target) as now:
            for number in range(4):
                queue.put(b"%d" % number)
                store.sync()
                now.wait_for_all(store)
    return sorted((tmp_path / "target/parts").rglob("*.part"))


def test_damaged_part_is_named_and_what_was_before_it_is_restored(
    tmp_path: Path, target: Target
) -> None:
    parts = filled(tmp_path, target)
    whole = parts[-2].read_bytes()
    for at in range(0, len(whole), 37):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        parts[-2].write_bytes(damaged)
        with pytest.raises(ValueError, match=r"is damaged: .*: --until (\S+)") as caught:
            restore(target, tmp_path / "again")
    assert parts[-2].name in str(caught.value)
    assert not (tmp_path / "again").exists()
    assert sorted(os.listdir(tmp_path)) == ["store", "target"]
    until = datetime.fromisoformat(str(caught.value).rpartition(" ")[2])
    restore(target, tmp_path / "again", until)
    assert held(tmp_path / "again")["q"] == [b"%d" % number for number in range(len(parts) - 2)]


def test_missing_part_is_named(tmp_path: Path, target: Target) -> None:
    parts = filled(tmp_path, target)
    parts[1].unlink()
    with pytest.raises(ValueError, match=r"part 2 of .* is missing"):
        restore(target, tmp_path / "again")
    parts[0].unlink()
    with pytest.raises(ValueError, match="begins with part 3, and those before it"):
        restore(target, tmp_path / "again")
    assert sorted(os.listdir(tmp_path)) == ["store", "target"]


def test_part_of_another_stream_under_this_name_is_refused(tmp_path: Path, target: Target) -> None:
    parts = filled(tmp_path, target)
    first = parts[1].read_bytes()
    parts[1].write_bytes(parts[2].read_bytes())
    with pytest.raises(ValueError, match="it is another part than its name says"):
        restore(target, tmp_path / "again")
    parts[1].write_bytes(first)
    restore(target, tmp_path / "again")


def test_body_that_is_damaged_is_counted_and_all_else_is_archived(
    tmp_path: Path,
    target: Target,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Damaged(JournalReader):
        def _body(self, reference: bytes, size: int) -> bytes | None:
            return super()._body(reference[:24] + b"none", size)

    monkeypatch.setattr(running, "JournalReader", Damaged)
    with pyqstore.open(tmp_path / "store") as store, archived(store, target) as now:
        for body in (BIG, b"small"):
            store.queue("q").put(body)
            store.sync()
        now.wait_for_all(store)
    assert now.last.damages == 1
    assert "cannot be read, and is not archived" in caplog.text
    assert restore(target, tmp_path / "again").verification.damages == 1


# ---- what is refused ----


def test_store_has_one_archive_and_a_target_the_archive_of_one_store(
    tmp_path: Path, target: Target
) -> None:
    with (
        pyqstore.open(tmp_path / "store") as store,
        archived(store, target),
        pytest.raises(FileExistsError, match="is archived already"),
    ):
        archive(store, target, threading.Event())
    with (
        pyqstore.open(tmp_path / "other") as store,
        pytest.raises(FileExistsError, match="has the archive of another store"),
    ):
        archive(store, target, threading.Event())
    with pyqstore.open(":memory:") as store, pytest.raises(ValueError, match="in memory"):
        archive(store, target, threading.Event())


@pytest.mark.parametrize(
    "wrong",
    [{"part_seconds": 0}, {"part_bytes": 0}, {"lag_bytes": 0}, {"base_hours": 0},
     {"keep_days": -1}],
)  # fmt: skip
def test_choices_that_make_no_sense_are_named(
    tmp_path: Path, target: Target, wrong: dict[str, float]
) -> None:
    with (
        pyqstore.open(tmp_path / "store") as store,
        pytest.raises(ValueError, match=next(iter(wrong))),
    ):
        archive(store, target, threading.Event(), Choices(**wrong))  # type: ignore[arg-type]


def test_nothing_is_restored_of_a_time_before_the_archive(tmp_path: Path, target: Target) -> None:
    with pytest.raises(FileNotFoundError, match="no base of an archive"):
        restore(target, tmp_path / "again")
    filled(tmp_path, target)
    with pytest.raises(FileNotFoundError, match="the archive begins at"):
        restore(target, tmp_path / "again", datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(FileNotFoundError, match="the archive begins at"):
        restore(target, tmp_path / "again", datetime(2020, 1, 1))
    with pytest.raises(FileExistsError):
        restore(target, tmp_path / "store")


# ---- bases and retention ----


def test_bases_follow_each_other_and_retention_keeps_what_the_days_need(
    tmp_path: Path, target: Target
) -> None:
    with pyqstore.open(tmp_path / "store", **OPTIONS) as store:
        work = Work(store, SEED)
        with archived(store, target, Choices(part_seconds=0.1, base_hours=0.3 / 3600)) as now:
            while now.last.bases < 4:
                work.go(5)
            now.wait_for_all(store)
        assert now.last.restarts == 0
    names = bases(target)
    made = [read_base(target, each).made for each in names]
    parts = set((tmp_path / "target/parts").rglob("*.part"))
    days = (datetime.now(UTC) - made[-2]).total_seconds() / 86400
    none = timedelta(0)
    assert prune(target, days + 1, none) == []
    assert set((tmp_path / "target/parts").rglob("*.part")) == parts
    assert prune(target, days, none) == names[:-2]
    assert bases(target) == names[-2:]
    assert set((tmp_path / "target/parts").rglob("*.part")) < parts
    for number, when in enumerate((made[-2], made[-1], None)):
        restored = restore(target, tmp_path / f"again-{number}", when)
        check(tmp_path / f"again-{number}", restored, work)
    with pytest.raises(FileNotFoundError, match="the archive begins at"):
        restore(target, tmp_path / "earlier", made[0])
    assert prune(target, 0, none) == names[-2:-1]
    assert prune(target, 0, none) == []
    check(tmp_path / "last", restore(target, tmp_path / "last"), work)
    with pytest.raises(ValueError, match="days must be 0 or more"):
        prune(target, -1)


def test_opened_again_the_store_has_another_base_in_the_same_target(
    tmp_path: Path, target: Target
) -> None:
    for number in range(2):
        with pyqstore.open(tmp_path / "store") as store, archived(store, target) as now:
            store.queue("q").put(b"%d" % number)
            store.sync()
            now.wait_for_all(store)
    assert len(bases(target)) == 2
    restore(target, tmp_path / "again")
    assert held(tmp_path / "again")["q"] == [b"0", b"1"]
    again = restore(target, tmp_path / "first", read_base(target, bases(target)[1]).made - _MS)
    assert held(tmp_path / "first")["q"] == [b"0"]
    assert again.base.name == bases(target)[0]


# ---- what would not be in the journal ----


def test_adopted_files_are_archived_as_messages(tmp_path: Path, target: Target) -> None:
    with pyqstore.open(tmp_path / "store") as store:
        declare(store, "s", STREAM)
        with archived(store, target) as now:
            (tmp_path / "staged").mkdir()
            write(tmp_path / "staged" / "rows", 0, 3000, exchange="e")
            adopted = store.adopt([tmp_path / "staged" / "rows"], "key")
            assert adopted.rows == 3000
            assert adopted.linked == 0
            now.wait_for_all(store)
        assert now.last.restarts == 0
    restore(target, tmp_path / "again")
    assert held(tmp_path / "again")["s"] == [b"body %d" % number for number in range(3000)]


def test_large_batches_for_streams_are_in_the_parts(tmp_path: Path, target: Target) -> None:
    with pyqstore.open(tmp_path / "store") as store:
        stream = store.stream("s")
        with archived(store, target) as now:
            for _ in range(5):
                stream.publish_batch(pa.record_batch({"body": [BIG] * 50}))
            now.wait_for_all(store)
        assert now.last.restarts == 0
        stream.publish_batch(pa.record_batch({"body": [BIG] * 50}))
    restore(target, tmp_path / "again")
    assert held(tmp_path / "again")["s"] == [BIG] * 250


def test_moments_are_thinned_out_while_nothing_is_read() -> None:
    moments = Moments(0)
    for lsn in range(1, 10_001):
        moments.note(lsn)
    assert moments.first_behind(0) <= moments.first_behind(9_999)
    taken = moments.take(9_999)
    assert 1_000 < len(taken) < 5_000
    assert [lsn for _, lsn in taken] == sorted({lsn for _, lsn in taken})
    assert moments.take(10_000)[-1][1] == 10_000
    assert moments.waits_s(9_999) > 0
    assert moments.waits_s(10_000) == 0

"""What is taken from a queue: once, whatever is killed, cut or full; asked again, the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
from spark_udfs import end_drain, spool
from spark_udfs.opening import changing
from spark_udfs.options import ReadOptions
from spark_udfs.reading import SourceError
from spark_udfs.spool import Spool, batch_spool, drain_spool
from spark_udfs.staging import StagedFile, StagingFolder

from ..platter import Platter
from .planting import PLANTING

ROWS = 5000
NUMBERS = pa.schema([("offset", pa.int64()), ("body", pa.binary()), ("routing_key", pa.string())])

# Takes, after planting a kill before or after a function.
_CHILD = f"""{PLANTING}
import pyarrow
from spark_udfs import opening, options, spool, staging

given, name = json.loads(sys.argv[1])
exec(sys.argv[2])
spool.FILE_BYTES = 100_000
asked = options.ReadOptions.parse(given, streaming=False)
with opening.changing(asked.path, wait_s=60) as store:
    spool.take(store, asked, spool.Spool(asked.path, name), None)
"""

_PLANTED = {
    "taken": "after(pyqstore.Channel, 'get_batch')",
    "half a file": "after(pyarrow.RecordBatchFileWriter, 'write_batch')",
    "one file": "after(staging.StagingFolder, 'write')",
    "all files": "before(spool, '_write_manifest')",
    "manifest": "after(spool, '_write_manifest')",
    "acked": "after(pyqstore.Channel, 'basic_ack')",
    "committed": "after(pyqstore.Channel, 'tx_commit')",
    "closed": "after(pyqstore.Store, 'close')",
}


def take(options: ReadOptions, taken: Spool, *, rows_max: int | None) -> list[StagedFile]:
    """As a job does."""
    with changing(options.path, wait_s=options.lock_timeout) as store:
        return spool.take(store, options, taken, rows_max)


@pytest.fixture
def options(disk: Any) -> ReadOptions:
    return ReadOptions.parse({"path": str(disk.path), "queue": "all"}, streaming=False)


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "FILE_BYTES", 100_000)
    monkeypatch.setattr(spool, "_BATCH_ROWS", 500)


def numbers(taken: Spool) -> list[int]:
    rows = [
        row
        for file in taken.files()
        for batch in spool.read_file(taken, file, NUMBERS)
        for row in batch.to_pylist()
    ]
    assert [row["offset"] for row in rows] == list(range(len(rows)))
    assert {row["routing_key"] for row in rows} <= {"n.0", "n.1"}
    return [int(row["body"]) for row in rows]


def test_what_is_taken_is_told_again_and_is_gone_from_the_queue(
    disk: Any, options: ReadOptions
) -> None:
    disk.publish(range(ROWS))
    first = drain_spool(options.path, "all", "monday")
    files = take(options, first, rows_max=None)
    assert len(files) > 1
    assert disk.ready() == 0
    disk.publish(range(ROWS, ROWS + 10))
    assert take(options, first, rows_max=None) == files
    assert numbers(first) == list(range(ROWS))
    assert disk.ready() == 10
    second = drain_spool(options.path, "all", "tuesday")
    take(options, second, rows_max=None)
    assert numbers(second) == list(range(ROWS, ROWS + 10))
    assert numbers(first) == list(range(ROWS))


def test_no_more_is_taken_than_asked_for(disk: Any, options: ReadOptions) -> None:
    disk.publish(range(ROWS))
    taken = batch_spool(options.path, "q", 1)
    take(options, taken, rows_max=1234)
    assert numbers(taken) == list(range(1234))
    assert disk.numbers() == list(range(1234, ROWS))


def test_an_empty_queue_is_taken_as_empty_for_good(disk: Any, options: ReadOptions) -> None:
    taken = drain_spool(options.path, "all", "t")
    assert take(options, taken, rows_max=None) == []
    disk.publish(range(10))
    assert take(options, taken, rows_max=None) == []
    assert disk.ready() == 10


def test_end_of_a_drain_that_is_killed_can_be_repeated(
    disk: Any, options: ReadOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was removed by then, the manifest tells that there is something to remove."""
    disk.publish(range(10))
    take(options, drain_spool(options.path, "all", "t"), rows_max=None)

    def dies(_folder: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("spark_udfs.staging.StagingFolder.sweep", dies)
        with pytest.raises(KeyboardInterrupt):
            end_drain(disk.path, "all", "t")
    assert [name.rpartition("/")[2] for name in disk.staged][1:] == ["manifest.json"]
    assert end_drain(disk.path, "all", "t")
    assert disk.staged == []


def test_drain_that_was_ended_is_not_taken_again(disk: Any, options: ReadOptions) -> None:
    disk.publish(range(10))
    take(options, drain_spool(options.path, "all", "t"), rows_max=None)
    assert not end_drain(disk.path, "all", "other")
    with pyqstore.open(disk.path):
        assert end_drain(disk.path, "all", "t")
    assert not end_drain(disk.path, "all", "t")
    disk.publish(range(10))
    with pytest.raises(SourceError, match="it was ended"):
        take(options, drain_spool(options.path, "all", "t"), rows_max=None)
    assert disk.ready() == 10
    assert disk.staged == []


def test_sweeping_by_age_spares_the_only_copy_of_messages(disk: Any, options: ReadOptions) -> None:
    disk.publish(range(10))
    taken = drain_spool(options.path, "all", "t")
    take(options, taken, rows_max=None)
    job = StagingFolder(str(disk.path), "job")
    job.create()
    prepared = job.path.with_name("prepared-0")
    prepared.mkdir()
    for folder in (job.path, taken.folder.path, prepared):
        os.utime(folder, (0, 0))
    job.sweep_stale(job.stale())
    assert not job.path.exists()
    assert prepared.exists()
    assert numbers(taken) == list(range(10))


def test_damaged_rows_are_refused(disk: Any, options: ReadOptions) -> None:
    disk.publish(range(10))
    taken = drain_spool(options.path, "all", "t")
    (file,) = take(options, taken, rows_max=None)
    path = taken.folder.path / file.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(SourceError, match="its task reported"):
        numbers(taken)


@pytest.mark.crash
@pytest.mark.parametrize("plant", _PLANTED)
def test_killed_while_it_takes_each_message_is_taken_once(
    disk: Any, options: ReadOptions, plant: str
) -> None:
    disk.publish(range(ROWS))
    taken = drain_spool(options.path, "all", "t")
    told = json.dumps([{"path": options.path, "queue": "all"}, taken.name])
    child = subprocess.run([sys.executable, "-P", "-c", _CHILD, told, _PLANTED[plant]], check=False)
    assert child.returncode == -9
    consumed = plant in ("committed", "closed")
    assert disk.knows(taken.name) == consumed
    assert disk.ready() == (0 if consumed else ROWS)
    disk.publish(range(ROWS, ROWS + 10))
    take(options, taken, rows_max=None)
    expected = list(range(ROWS if consumed else ROWS + 10))
    assert numbers(taken) == expected
    assert disk.numbers() == list(range(len(expected), ROWS + 10))


@pytest.mark.parametrize("name", ["fsync", "rename", "mkdir"])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_full_disk_while_it_takes_loses_nothing(
    disk: Any, options: ReadOptions, monkeypatch: pytest.MonkeyPatch, name: str, call: int
) -> None:
    disk.publish(range(ROWS))
    taken = drain_spool(options.path, "all", "t")
    wrapped, calls = getattr(os, name), 0

    def full(*arguments: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise OSError(28, "planted: no space left")
        return wrapped(*arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(os, name, full)
        with suppress(OSError):
            take(options, taken, rows_max=None)
    if calls >= call:
        assert not disk.knows(taken.name)
        assert disk.ready() == ROWS
    take(options, taken, rows_max=None)
    assert numbers(taken) == list(range(ROWS))
    assert disk.ready() == 0


@pytest.fixture
def platter(monkeypatch: pytest.MonkeyPatch) -> Platter:
    return Platter(monkeypatch)


def test_power_cut_right_after_the_messages_are_consumed_leaves_their_rows(
    disk: Any, options: ReadOptions, platter: Platter, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.publish(range(ROWS))
    taken = drain_spool(options.path, "all", "t")
    commit: Callable[..., bool] = pyqstore.Channel.tx_commit

    class Cut(BaseException):
        pass

    def cut_behind(channel: pyqstore.Channel, *, key: str) -> bool:
        root = taken.folder.root
        assert platter.names[disk.path.stat().st_ino][root.name] == root.stat().st_ino
        platter.cut(root)
        commit(channel, key=key)
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(pyqstore.Channel, "tx_commit", cut_behind)
        with pytest.raises(Cut):
            take(options, taken, rows_max=None)
    assert disk.knows(taken.name)
    take(options, taken, rows_max=None)
    assert numbers(taken) == list(range(ROWS))

"""Staged files, written and read without a store."""

from __future__ import annotations

import os
import pickle
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore

from ..adopting import STREAM, bodies, declare, named, rows, write


def test_a_staged_file_has_what_was_written(stage: Path) -> None:
    staged = write(stage / "0.qsb", 0, 2500, exchange="e")
    assert (staged.path, staged.rows, staged.routes) == (str(stage / "0.qsb"), 2500, 7)
    assert staged.bytes == os.path.getsize(stage / "0.qsb")
    assert staged.body_bytes == sum(map(len, named(2500)))
    assert pyqstore.check_staged(stage / "0.qsb") == staged
    assert pickle.loads(pickle.dumps(staged)) == staged
    table = pa.Table.from_batches(pyqstore.read_staged(stage / "0.qsb"))
    assert table["body"].to_pylist() == named(2500)
    assert set(table["exchange"].to_pylist()) == {"e"}
    assert table["routing_key"].to_pylist()[:8] == ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k0"]
    assert table["message_id"].to_pylist()[-1] == "2499"
    assert set(table["delivery_mode"].to_pylist()) == {2}
    assert os.listdir(stage) == ["0.qsb"]


def test_each_property_comes_back(stage: Path) -> None:
    batch = pa.record_batch(
        {
            "body": [b"a", b"b"],
            "exchange": ["e", None],
            "routing_key": [None, "key"],
            "headers": pa.array([[("h", "v")], None], pa.map_(pa.string(), pa.string())),
            "priority": pa.array([3, None], pa.uint8()),
            "expiration_ms": pa.array([None, 5000], pa.int64()),
            "timestamp": pa.array([1_700_000_000, None], pa.timestamp("s", "UTC")),
            "user_id": ["guest", None],
            "content_encoding": [None, "gzip"],
        }
    )
    properties = pyqstore.Properties(app_id="app", headers={"h": "default"}, delivery_mode=1)
    with pyqstore.StagedWriter(
        stage / "a.qsb", exchange="d", routing_key="r", properties=properties
    ) as writer:
        writer.write_batch(batch)
    found = pa.Table.from_batches(pyqstore.read_staged(stage / "a.qsb")).to_pylist()
    assert [row["exchange"] for row in found] == ["e", "d"]
    assert [row["routing_key"] for row in found] == ["r", "key"]
    assert [row["headers"] for row in found] == [[("h", "v")], [("h", "default")]]
    assert [row["app_id"] for row in found] == ["app", "app"]
    assert [row["priority"] for row in found] == [3, None]
    assert [row["expiration_ms"] for row in found] == [None, 5000]
    assert [row["user_id"] for row in found] == ["guest", None]
    assert [row["content_encoding"] for row in found] == [None, "gzip"]
    assert [row["delivery_mode"] for row in found] == [1, 1]
    assert found[0]["timestamp"].timestamp() == 1_700_000_000


def test_a_stream_of_batches_is_written_one_by_one(stage: Path) -> None:
    table = pa.Table.from_batches([rows(0, 500), rows(500, 500)])
    with pyqstore.StagedWriter(stage / "0.qsb") as writer:
        assert writer.write_batch(table) == 1000
    assert writer.close() == writer.result
    assert writer.result.rows == 1000
    assert len(list(pyqstore.read_staged(stage / "0.qsb"))) == 2


def test_without_rows_there_is_no_file(stage: Path) -> None:
    with pyqstore.StagedWriter(stage / "0.qsb") as writer:
        assert writer.write_batch(rows(0, 0)) == 0
    assert writer.result == pyqstore.StagedFile("", 0, 0, 0, 0)
    assert os.listdir(stage) == []


def test_an_exception_leaves_nothing(stage: Path) -> None:
    writer = pyqstore.StagedWriter(stage / "0.qsb")
    writer.write_batch(rows(0, 10))
    (name,) = os.listdir(stage)
    assert re.fullmatch(r"0\.qsb\.[0-9a-f]{16}\.tmp", name)
    with pytest.raises(ZeroDivisionError), writer:
        raise ZeroDivisionError
    assert os.listdir(stage) == []
    with pytest.raises(ValueError, match="aborted"):
        writer.result  # noqa: B018 - it raises
    with pytest.raises(ValueError, match="closed"):
        writer.write_batch(rows(0, 10))


def test_a_writer_that_was_dropped_leaves_nothing(stage: Path) -> None:
    writer = pyqstore.StagedWriter(stage / "0.qsb")
    writer.write_batch(rows(0, 10))
    del writer
    assert os.listdir(stage) == []


def test_what_a_writer_that_died_left_counts_for_nothing(
    stage: Path, store: pyqstore.Store
) -> None:
    (stage / "0.qsb.0123456789abcdef.tmp").write_bytes(b"half of it")
    assert write(stage / "0.qsb", 0, 10, exchange="e").rows == 10
    declare(store, "log", STREAM)
    assert store.adopt(stage, "key").rows == 10


def test_a_path_that_is_taken_or_nowhere_is_refused(stage: Path) -> None:
    write(stage / "0.qsb", 0, 10)
    with pytest.raises(FileExistsError, match=r"0\.qsb"):
        pyqstore.StagedWriter(stage / "0.qsb")
    with pytest.raises(FileNotFoundError):
        pyqstore.StagedWriter(stage / "missing" / "0.qsb")
    with pytest.raises(FileNotFoundError):
        pyqstore.check_staged(stage / "1.qsb")
    with pytest.raises(ValueError, match="name"):
        pyqstore.StagedWriter(stage / ("x" * 235))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"body": [b"a", None]}, "row 1"),
        ({"body": [b"a"], "boddy": [b"a"]}, "boddy"),
        ({"body": [b"a"], "routing_key": ["k" * 256]}, "row 0"),
        ({"body": [b"a"], "exchange": ["e" * 256]}, "row 0"),
        ({"body": [b"a"], "expiration_ms": pa.array([-1], pa.int64())}, "row 0"),
        ({"body": [b"a"], "due": pa.array([2**40], pa.timestamp("s"))}, "due"),
    ],
)
def test_a_bad_row_is_named_and_the_writer_goes_on(
    stage: Path, columns: dict[str, Any], message: str
) -> None:
    with pyqstore.StagedWriter(stage / "0.qsb") as writer:
        writer.write_batch(rows(0, 10))
        with pytest.raises(ValueError, match=message):
            writer.write_batch(pa.record_batch(columns))
        writer.write_batch(rows(10, 10))
    assert pyqstore.check_staged(stage / "0.qsb") == writer.result
    assert (writer.result.rows, writer.result.routes) == (20, 7)


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_a_row_with_carbon_copies_is_refused_before_a_job_fails_of_it(
    stage: Path, name: str
) -> None:
    headers = pa.array([None, [(name, "k")]], pa.map_(pa.string(), pa.string()))
    with pyqstore.StagedWriter(stage / "0.qsb") as writer:
        with pytest.raises(ValueError, match=f'row 1: .*"{name}"'):
            writer.write_batch(pa.record_batch({"body": [b"a", b"b"], "headers": headers}))
        writer.write_batch(rows(0, 10))
    assert pyqstore.check_staged(stage / "0.qsb").rows == 10


def test_a_cluster_id_is_refused_as_rows_that_are_published_would_lose_it(stage: Path) -> None:
    properties = pyqstore.Properties(cluster_id="c")
    with (
        pyqstore.StagedWriter(stage / "0.qsb", properties=properties) as writer,
        pytest.raises(ValueError, match="cluster_id"),
    ):
        writer.write_batch(rows(0, 10))


def test_an_expiration_that_a_number_does_not_tell_is_refused(stage: Path) -> None:
    with (
        pyqstore.StagedWriter(
            stage / "0.qsb", properties=pyqstore.Properties(expiration="0060000")
        ) as writer,
        pytest.raises(ValueError, match="'0060000'"),
    ):
        writer.write_batch(rows(0, 10))
    with pyqstore.StagedWriter(
        stage / "1.qsb", properties=pyqstore.Properties(expiration="0")
    ) as writer:
        assert writer.write_batch(rows(0, 10)) == 10


def test_a_writer_that_aborts_leaves_what_another_one_finished(stage: Path) -> None:
    zombie = pyqstore.StagedWriter(stage / "0.qsb")
    zombie.write_batch(rows(0, 10))
    finished = write(stage / "0.qsb", 0, 20)
    zombie.abort()
    assert pyqstore.check_staged(stage / "0.qsb") == finished
    assert os.listdir(stage) == ["0.qsb"]


def test_a_writer_that_closes_late_does_not_replace_what_another_one_finished(stage: Path) -> None:
    late = pyqstore.StagedWriter(stage / "0.qsb")
    finished = write(stage / "0.qsb", 0, 20)
    late.write_batch(rows(0, 10))
    with pytest.raises(FileExistsError, match=r"0\.qsb"):
        late.close()
    assert pyqstore.check_staged(stage / "0.qsb") == finished
    assert os.listdir(stage) == ["0.qsb"]


def test_of_two_writers_of_one_path_at_a_time_the_first_that_closes_has_it(stage: Path) -> None:
    first = pyqstore.StagedWriter(stage / "0.qsb")
    first.write_batch(rows(0, 10))
    second = pyqstore.StagedWriter(stage / "0.qsb")
    second.write_batch(rows(0, 20))
    finished = first.close()
    with pytest.raises(FileExistsError, match=r"0\.qsb"):
        second.close()
    assert pyqstore.check_staged(stage / "0.qsb") == finished
    assert (finished.rows, os.listdir(stage)) == (10, ["0.qsb"])


def test_writers_that_close_one_path_at_once_finish_one_file(stage: Path) -> None:
    writers = [pyqstore.StagedWriter(stage / "0.qsb") for _ in range(8)]
    for number, writer in enumerate(writers):
        writer.write_batch(rows(0, 1 + number))
    start = threading.Barrier(len(writers))
    finished: list[pyqstore.StagedFile] = []

    def close(writer: pyqstore.StagedWriter) -> None:
        start.wait()
        with suppress(FileExistsError):
            finished.append(writer.close())

    threads = [threading.Thread(target=close, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert finished == [pyqstore.check_staged(stage / "0.qsb")]
    assert os.listdir(stage) == ["0.qsb"]


def test_a_writer_that_was_busy_when_it_was_to_close_keeps_its_rows(stage: Path) -> None:
    writer = pyqstore.StagedWriter(stage / "0.qsb")
    writer.write_batch(rows(0, 10))

    def closing() -> Iterator[pa.RecordBatch]:
        with pytest.raises(RuntimeError, match="another thread"):
            writer.close()
        yield rows(10, 10)

    writer.write_batch(pa.RecordBatchReader.from_batches(rows(0, 1).schema, closing()))
    assert writer.close().rows == 20
    assert pyqstore.check_staged(stage / "0.qsb") == writer.result


def test_no_writer_removes_what_another_one_finished_as_its_own_leftover(stage: Path) -> None:
    with pytest.raises(ValueError, match=r"\.tmp"):
        pyqstore.StagedWriter(stage / "0.qsb.tmp")
    write(stage / "0.qsb", 0, 10)
    assert os.listdir(stage) == ["0.qsb"]


def test_the_name_of_the_column_is_text(stage: Path, store: pyqstore.Store) -> None:
    with (
        store.trace() as trace,
        pytest.raises(TypeError, match="body must be the name of a column"),
    ):
        pyqstore.StagedWriter(stage / "0.qsb", body=trace)  # type: ignore[arg-type]
    assert os.listdir(stage) == []


def test_a_path_with_a_nul_character_is_not_cut_short(stage: Path, store: pyqstore.Store) -> None:
    path = str(stage / "0\0.qsb")
    for call in (pyqstore.StagedWriter, pyqstore.check_staged):
        with pytest.raises(ValueError, match="NUL"):
            call(path)
    with pytest.raises(ValueError, match="NUL"):
        store.adopt([path], "key")
    assert os.listdir(stage) == []


@pytest.mark.parametrize("headers", [{"n": 5}, {"CC": ["k"]}, {"BCC": ["k"]}])
def test_default_headers_must_be_strings(stage: Path, headers: Any) -> None:
    with (
        pyqstore.StagedWriter(
            stage / "0.qsb", properties=pyqstore.Properties(headers=headers)
        ) as writer,
        pytest.raises(ValueError, match=next(iter(headers))),
    ):
        writer.write_batch(rows(0, 10))
    assert os.listdir(stage) == []


def test_more_routes_than_are_told(stage: Path, store: pyqstore.Store) -> None:
    with pyqstore.StagedWriter(stage / "0.qsb", exchange="e") as writer:
        for at in range(0, 70_000, 10_000):
            writer.write_batch(rows(at, 10_000, keys=70_000))
    assert writer.result.routes == 0
    assert pyqstore.check_staged(stage / "0.qsb").rows == 70_000
    declare(store, "log", STREAM)
    assert store.adopt(stage, "key") == pyqstore.Adoption(True, 70_000, 0, 1, 0)
    assert bodies(store, "log") == named(70_000)

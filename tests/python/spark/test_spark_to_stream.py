"""Rows that the option ``stream`` sends to a stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyqstore
import pyqstore.flight
from spark_udfs.options import OptionError, WriteOptions
from spark_udfs.sink import check_frame

pytestmark = pytest.mark.spark
ROWS = 200


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A store with a stream "log" and a queue "queue"."""
    path = tmp_path / "store"
    with pyqstore.open(path) as store, store.channel() as channel:
        store.stream("log")
        channel.queue_declare("queue", durable=True)
    return path


def save(frame: Any, **options: str) -> None:
    frame.write.format("pyqstore").options(**options).mode("append").save()


def read(path: Path, **filters: Any) -> list[tuple[str, str]]:
    with pyqstore.open(path) as store:
        table = store.stream("log").read(**filters).read_all()
    return sorted(zip(table["routing_key"].to_pylist(), table["body"].to_pylist(), strict=True))


def test_rows_keep_the_keys_by_which_readers_of_the_stream_filter(
    spark: Any, numbered: Callable[..., Any], log: Path
) -> None:
    save(numbered(ROWS), path=str(log), stream="log")
    save(numbered(ROWS).select("body"), path=str(log), stream="log")
    save(numbered(ROWS).select("body"), path=str(log), stream="log", routing_key="own")
    keys = {"n.0", "n.1", "log", "own"}
    rows = read(log)
    assert {key for key, _ in rows} == keys
    assert len(rows) == 3 * ROWS
    for key in keys:
        assert read(log, routing_keys=[key]) == [row for row in rows if row[0] == key]


def test_what_is_no_stream_is_refused_before_a_row_is_computed(
    numbered: Callable[..., Any], log: Path, tmp_path: Path
) -> None:
    for name, words in (("queue", "is a queue"), ("lgo", "lgo")):
        with pytest.raises(Exception, match=words):
            save(numbered(ROWS), path=str(log), stream=name)
    with pyqstore.open(log) as store:
        assert store.queue_status("queue").messages_ready == 0
        assert store.queues() == ["log", "queue"]
    save(numbered(ROWS), path=str(tmp_path / "new"), stream="log", create="true")
    assert len(read(tmp_path / "new")) == ROWS


def test_a_query_writes_to_a_stream(
    spark: Any, log: Path, tmp_path: Path, numbered: Callable[..., Any]
) -> None:
    frame = numbered(ROWS)
    frame.write.parquet(str(tmp_path / "rows"))
    source = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "rows"))
    query = (
        source.writeStream.format("pyqstore")
        .options(path=str(log), stream="log", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len(read(log, routing_keys=["n.1"])) == ROWS // 2


def test_a_server_has_rows_in_its_stream(numbered: Callable[..., Any], log: Path) -> None:
    with pyqstore.open(log) as store, pyqstore.flight.serve(store) as server:
        url = f"grpc://{server.address}"
        save(numbered(ROWS), url=url, stream="log")
        with pytest.raises(Exception, match="is a queue"):
            save(numbered(ROWS), url=url, stream="queue")
    assert len(read(log, routing_keys=["n.1"])) == ROWS // 2


@pytest.mark.parametrize(
    ("options", "columns", "words"),
    [
        ({"stream": ""}, ["body"], "is empty"),
        ({"stream": "log", "exchange": "e"}, ["body"], "not both"),
        ({"stream": "log"}, ["body", "exchange"], "leave one of them out"),
        ({"stream": "l" * 250}, ["body", "routing_key"], "at most 239 bytes"),
    ],
)
def test_options_that_do_not_go_with_a_stream_are_refused(
    options: dict[str, str], columns: list[str], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        check_frame(
            WriteOptions.parse({"path": "/x", **options}), [(name, "string") for name in columns]
        )

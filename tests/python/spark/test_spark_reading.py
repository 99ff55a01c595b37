"""spark_udfs.reading and its options, driven without Spark: which rows, and which refusals."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
from spark_udfs import reading, received
from spark_udfs.columns import ColumnError
from spark_udfs.frames import _spark_type
from spark_udfs.opening import StoreBusyError
from spark_udfs.options import OptionError, ReadOptions
from spark_udfs.reading import Part, SourceError, Wanted, Watch

Options = Callable[..., ReadOptions]
OFFSETS = pa.schema([("offset", pa.int64())])


@pytest.fixture
def options(disk: Any) -> Options:
    """options(streaming=False, **options): of reading the store, as Spark's come."""

    def make(*, streaming: bool = False, **given: str) -> ReadOptions:
        lowered = {name.lower(): value for name, value in given.items()}
        return ReadOptions.parse({"path": str(disk.path), **lowered}, streaming=streaming)

    return make


def offsets(options: ReadOptions, parts: list[Part]) -> list[int]:
    read = reading.read_stream if options.stream else reading.read_queue
    return [
        number
        for part in parts
        for batch in read(options, part, OFFSETS)
        for number in batch["offset"].to_pylist()
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "either an option 'queue' or an option 'stream'"),
        ({"queue": "q", "stream": "s"}, "either an option 'queue' or an option 'stream'"),
        ({"queue": ""}, "option 'queue' is empty"),
        ({"queue": "q", "quue": "x"}, "'quue' is not known.*did you mean 'queue'"),
        ({"queue": "q", "startingOffset": "1"}, "'startingOffset' is for streams"),
        ({"stream": "s", "startingOffset": "-1"}, "'startingOffset' is '-1', expected first"),
        ({"stream": "s", "endingOffset": "2026-01-31T12:00:00"}, "a time with its zone"),
        ({"stream": "s", "minPartitions": "0"}, "'minPartitions' is '0', expected a number"),
        ({"stream": "s", "maxRowsPerBatch": "1"}, "'maxRowsPerBatch' is for readStream"),
        ({"stream": "s", "drain": "true", "txnid": "t"}, "'drain' is for spark.read of queues"),
        ({"queue": "q", "drain": "true"}, "'drain' and 'txnid' go together"),
        ({"queue": "q", "txnid": "t"}, "'drain' and 'txnid' go together"),
        ({"queue": "q", "txnid": "", "drain": "true"}, "'txnid' is empty"),
        ({"queue": "q", "txnid": "t", "drain": "true", "pushdown": "true"}, "does not go with"),
        ({"queue": "q", "pushdown": "yes"}, "'pushdown' is 'yes', expected true or false"),
        ({"queue": "q", "lock_timeout": "soon"}, "'lock_timeout' is 'soon', expected seconds"),
    ],
)
def test_options_that_do_not_read_are_refused(
    options: Options, given: dict[str, str], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        options(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"stream": "s", "endingOffset": "9"}, "'endingOffset' is for spark.read of streams"),
        ({"queue": "q", "maxRowsPerBatch": "many"}, "'maxRowsPerBatch' is 'many'"),
        ({"queue": "q", "group": "g"}, "'group' is for readStream of streams"),
        ({"queue": "q", "ack": "late"}, "'ack' is 'late', expected claim or take"),
        ({"queue": "q", "drain": "true", "txnid": "t"}, "'drain' is for spark.read of queues"),
    ],
)
def test_options_of_a_query_that_do_not_read_are_refused(
    options: Options, given: dict[str, str], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        options(streaming=True, **given)


def test_columns_are_all_that_the_engine_gives(disk: Any) -> None:
    disk.publish(range(2))
    disk.publish(range(2), to="log")
    names = {
        "int64": "bigint",
        "int16": "smallint",
        "bool": "boolean",
        "timestamp[us, tz=UTC]": "timestamp",
        "map<string, string>": "map<string,string>",
    }
    with pyqstore.open(disk.path, read_only=True) as store:
        queue = next(store.browse("all")).schema
        stream = store.stream("log").read().schema
    # Streams have nothing that is delivered again, so their engine does not tell.
    of_stream = {name: type_ for name, type_ in received.STREAM.items() if name != "redelivered"}
    for schema, known in ((queue, received.QUEUE), (stream, of_stream)):
        given = {
            {"sequence": "offset"}.get(field.name, field.name): str(_spark_type(field.type))
            for field in schema
        }
        assert {name: names.get(type_, type_) for name, type_ in given.items()} == known


def test_schema_that_names_what_is_not_there_is_refused() -> None:
    received.check_schema([("body", "binary"), ("offset", "bigint")], received.QUEUE)
    with pytest.raises(ColumnError, match=r"'ofset' is not known \(did you mean 'offset'\?\)"):
        received.check_schema([("ofset", "bigint")], received.QUEUE)
    with pytest.raises(ColumnError, match="'body' is string, expected binary"):
        received.check_schema([("body", "string")], received.STREAM)


def test_offsets_beyond_sparks_numbers_are_refused() -> None:
    batch = pa.record_batch({"sequence": pa.array([2**63], pa.uint64())})
    with pytest.raises(OverflowError, match=r"column 'offset'.*priorities"):
        received.as_spark(batch, OFFSETS)


@pytest.mark.parametrize("parts", [1, 3, 7])
def test_parts_of_a_stream_are_each_row_once_in_order(
    disk: Any, options: Options, parts: int
) -> None:
    disk.publish(range(500), to="log")
    disk.publish(range(500, 1000), to="log")
    asked = options(stream="log", minPartitions=str(parts))
    planned = reading.stream_parts(asked)
    assert len(planned) == parts
    assert offsets(asked, planned) == list(range(1000))


def test_parts_are_as_large_as_their_bytes(
    disk: Any, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.publish(range(1000), to="log")
    with pyqstore.open(disk.path, read_only=True) as store:
        status = store.stream("log").status()
    stored = max(status.disk_bytes, status.ram_bytes)
    monkeypatch.setattr(reading, "PART_BYTES", stored // 4)
    planned = reading.stream_parts(options(stream="log"))
    assert len(planned) in (4, 5)
    assert offsets(options(stream="log"), planned) == list(range(1000))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("first", "next", range(100)),
        ("10", "20", range(10, 20)),
        ("10", "1000", range(10, 100)),
        ("20", "10", range(0)),
        ("next", "next", range(0)),
        ("1000", "next", range(0)),
        ("2020-01-01T00:00:00Z", "next", range(100)),
        ("2020-01-01T00:00:00Z", "2020-01-02T00:00:00+01:00", range(0)),
        ("last", "next", range(99, 100)),
        ("first", "last", range(100)),
    ],
)
def test_stream_is_read_between_its_options(
    disk: Any, options: Options, start: str, end: str, expected: range
) -> None:
    disk.publish(range(99), to="log")
    disk.publish(range(99, 100), to="log")
    asked = options(stream="log", startingOffset=start, endingOffset=end)
    assert offsets(asked, reading.stream_parts(asked)) == list(expected)


def test_stream_is_read_from_a_time_to_a_time(disk: Any, options: Options) -> None:
    marks = []
    for number in range(3):
        disk.publish(range(10 * number, 10 * number + 10), to="log")
        time.sleep(0.002)
        marks.append(dt.datetime.now(dt.UTC))
        time.sleep(0.002)
    asked = options(
        stream="log", startingOffset=marks[0].isoformat(), endingOffset=marks[1].isoformat()
    )
    assert offsets(asked, reading.stream_parts(asked)) == list(range(10, 20))
    wanted = Wanted().times(marks[0], None).times(None, marks[1]).offsets(12, 18)
    assert offsets(asked, reading.stream_parts(options(stream="log"), wanted)) == list(
        range(12, 18)
    )


def test_stream_is_filtered_by_keys(disk: Any, options: Options) -> None:
    disk.publish(range(100), to="log")
    disk.publish(range(100))
    for asked in (options(stream="log", minPartitions="2"), options(queue="all")):
        plan = reading.stream_parts if asked.stream else reading.queue_parts
        wanted = Wanted().keys(["n.1", "n.2"]).offsets(None, 50)
        assert offsets(asked, plan(asked, wanted)) == list(range(1, 50, 2))
        assert plan(asked, wanted.keys(["n.0"])) == []


def test_a_queue_is_filtered_by_the_times_of_its_messages(disk: Any, options: Options) -> None:
    times = [dt.datetime(2026, 1, day, tzinfo=dt.UTC) for day in range(1, 11)]
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        for when in [None, *times]:
            properties = pyqstore.Properties(delivery_mode=2, timestamp=when)
            channel.basic_publish("", "all", b"", properties)
    asked = options(queue="all")
    for wanted, expected in (
        (Wanted().times(times[3], None), range(4, 11)),
        (Wanted().times(None, times[3]), range(1, 4)),
        (Wanted().times(times[2], times[5]).offsets(5, None), range(5, 6)),
        (Wanted().times(times[9] + dt.timedelta(microseconds=1), None), range(0)),
    ):
        assert offsets(asked, reading.queue_parts(asked, wanted)) == list(expected)


def test_dropped_rows_of_a_stream_are_told_by_their_offsets(disk: Any, options: Options) -> None:
    with pyqstore.open(disk.path) as store:
        stream = store.stream("log", max_messages=100, segment_bytes=1 << 16)
        for _ in range(8):
            stream.publish_batch(pa.table({"body": ["x" * 1000] * 100}))
            store.checkpoint()
        first = stream.first
    assert first > 0
    with pytest.raises(SourceError, match=f"begins at offset {first}.*offset 3 with it"):
        reading.stream_parts(options(stream="log", startingOffset="3"))
    with pytest.raises(SourceError, match=f"has the offsets {first} to 799, and 0 to 99 are"):
        offsets(options(stream="log"), [Part(0, 100)])
    assert len(offsets(options(stream="log"), reading.stream_parts(options(stream="log")))) > 0
    with pytest.raises(SourceError, match=r"900 to 999 are to be read.*made anew"):
        offsets(options(stream="log"), [Part(900, 1000)])


def test_queue_is_read_as_it_is_and_nothing_is_delivered(disk: Any, options: Options) -> None:
    disk.publish(range(100))
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        before = store.queue_status("all").to_dict()
        channel.get_batch("all", 10)
    asked = options(queue="all")
    for _ in range(2):
        assert offsets(asked, reading.queue_parts(asked)) == list(range(100))
    with pyqstore.open(disk.path, read_only=True) as store:
        after = store.queue_status("all").to_dict()
    counts = ("messages_ready", "messages_unacked", "consumers")
    assert [before[name] for name in counts] == [after[name] for name in counts]
    wanted = Wanted().offsets(20, None).offsets(10, 30)
    assert offsets(asked, reading.queue_parts(asked, wanted)) == list(range(20, 30))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"queue": "al"}, "no queue 'al' in the store .*; there are 'all', 'odd'"),
        ({"stream": "lg"}, "no stream 'lg' in the store .*; there are 'log'"),
        ({"queue": "log"}, "'log' is a stream: give it as option 'stream'"),
        ({"stream": "all"}, "'all' is a queue: give it as option 'queue'"),
    ],
)
def test_source_that_is_not_there_is_named(
    disk: Any, options: Options, given: dict[str, str], words: str
) -> None:
    disk.publish(range(1), to="log")
    asked = options(**given)
    with pytest.raises(SourceError, match=words):
        (reading.stream_parts if asked.stream else reading.queue_parts)(asked)


def test_owner_without_a_socket_keeps_readers_out_and_is_named(disk: Any, options: Options) -> None:
    asked = options(queue="all", lock_timeout="0.2")
    with (
        pyqstore.open(disk.path, control=False),
        pytest.raises(StoreBusyError, match=rf"0\.2 s: process {os.getpid()} .* has it open"),
    ):
        reading.queue_parts(asked)
    with pyqstore.open(disk.path, read_only=True):
        assert reading.queue_parts(asked) == [Part()]


def test_executor_that_does_not_see_the_store_says_so(options: Options, tmp_path: Path) -> None:
    asked = options(stream="log", path=str(tmp_path / "elsewhere"))
    with pytest.raises(SourceError, match=r"executor .* does not see .*elsewhere"):
        offsets(asked, [Part(0, 1)])
    with pytest.raises(OptionError, match="option 'path' is"):
        reading.stream_parts(asked)


def test_watch_tells_of_changes_and_trusts_no_fresh_file(disk: Any) -> None:
    watch = Watch(str(disk.path))
    assert not watch.is_unchanged()
    disk.publish(range(1))
    watch.note()
    assert not watch.is_unchanged()  # another change of the same moment would not be seen
    old = time.time() - 10
    for file in (disk.path / "journal").iterdir():
        os.utime(file, (old, old))
    watch.note()
    assert watch.is_unchanged()
    with pyqstore.open(disk.path, read_only=True):
        assert watch.is_unchanged()
    disk.publish(range(1))
    assert not watch.is_unchanged()

"""One rule for times without a zone: what is given is local time, as ``datetime.timestamp`` has it;
what is given out has a zone, UTC.

Each test runs far from UTC, in a zone that changes its clocks.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyqstore
import pyqstore.flight
from pyqstore.cli.reading import ParquetSource
from pyqstore.fields import decode_table, encode_table
from pyqstore.places import place_of
from pyqstore.serve.declared import declared
from pyqstore.serve.definitions import declare, parse_definitions
from pyqstore.times import time_text, utc_of

from ..support import get

ZONE = "NZST-12NZDT,M9.5.0,M4.1.0/3"


@pytest.fixture(autouse=True)
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", ZONE)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


SHOWN = datetime(2026, 1, 31, 12, 0, 0, 250_000)
MOMENT = int(datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=13))).timestamp())


def logged(store: pyqstore.Store) -> tuple[pyqstore.Stream, datetime]:
    """A stream of two messages, and a naive time with a fraction that lies between them."""
    stream = store.stream("log")
    stream.publish(b"before")
    before = datetime.fromtimestamp(published(stream, 0))
    while (between := datetime.now()) <= before or between.microsecond == 0:
        pass
    while datetime.now() <= between:
        pass
    stream.publish(b"after")
    return stream, between


def published(stream: pyqstore.Stream, offset: int) -> float:
    when: datetime = next(iter(stream.read(offset, columns=["timestamp"])))["timestamp"][0].as_py()
    return when.timestamp()


def consumed(store: pyqstore.Store, start: object) -> list[bytes]:
    with store.channel() as channel:
        channel.basic_qos(5)
        tag = channel.basic_consume("log", arguments={"x-stream-offset": start})
        first = channel.next_delivery(tag, timeout=60)
        assert first is not None
        return [first.body]


def work(store: pyqstore.Store, start: object) -> list[bytes]:
    arguments: Any = {"x-stream-source": "log", "x-stream-offset": start}
    with store.channel() as channel:
        channel.queue_declare("work", durable=True, arguments=arguments)
        message = get(channel, "work")
        return [message.body]


def polled(store: pyqstore.Store, start: datetime) -> list[bytes]:
    with store.stream_consumer("log", "group", start=start) as consumer:
        found: list[bytes] = consumer.poll(timeout=60)["body"].to_pylist()
        return found


def read(store: pyqstore.Store, start: datetime) -> list[bytes]:
    found: list[bytes] = store.stream("log").read(start).read_all()["body"].to_pylist()
    return found


def read_from_text(store: pyqstore.Store, start: datetime) -> list[bytes]:
    place: Any = place_of(start.isoformat())
    return read(store, place)


def read_until(store: pyqstore.Store, stop: datetime) -> list[bytes]:
    rows = store.stream("log").read("first", stop).read_all()
    return [b"after"] if rows["body"].to_pylist() == [b"before"] else []


def offset_at(store: pyqstore.Store, start: datetime) -> list[bytes]:
    return read_at(store, store.stream("log").offset_at(start))


def read_at(store: pyqstore.Store, offset: int) -> list[bytes]:
    found: list[bytes] = store.stream("log").read(offset).read_all()["body"].to_pylist()
    return found


@pytest.mark.parametrize(
    "take",
    [read, read_until, read_from_text, offset_at, polled, consumed, work],
    ids=lambda take: take.__name__,
)
def test_a_naive_start_and_the_same_in_utc_are_one_place_to_the_microsecond(
    store: pyqstore.Store, take: Callable[[pyqstore.Store, datetime], list[bytes]]
) -> None:
    _, between = logged(store)
    assert take(store, between) == [b"after"]
    assert take(store, between.astimezone(UTC)) == [b"after"]


def test_what_a_stream_gives_out_leads_back_to_its_row(store: pyqstore.Store) -> None:
    stream, _ = logged(store)
    for offset in (0, 1):
        when = next(iter(stream.read(offset)))["timestamp"][0].as_py()
        assert when.tzinfo is not None
        assert stream.offset_at(when) == offset


def test_naive_properties_and_headers_are_local(channel: pyqstore.Channel, queue: str) -> None:
    properties = pyqstore.Properties(timestamp=SHOWN, headers={"when": SHOWN})
    channel.basic_publish("", queue, b"", properties)
    message = get(channel, queue)
    assert message.properties.timestamp == MOMENT
    assert message.properties.headers["when"] == datetime.fromtimestamp(MOMENT, UTC)
    assert decode_table(encode_table({"when": SHOWN}))["when"].tzinfo is UTC


UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def column(shown: datetime, unit: str) -> pa.Array:
    return pa.array([shown.replace(microsecond=0), None], pa.timestamp(unit))


@pytest.mark.parametrize("unit", UNITS)
def test_a_naive_column_is_local_time(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str, stage: Path, unit: str
) -> None:
    """``timestamp`` and ``due`` of whatever takes Arrow data, and the caller's memory is as it
    was."""
    soon = datetime.now() + timedelta(hours=1)
    batch = pa.record_batch(
        {"body": [b"0", b"1"], "timestamp": column(SHOWN, unit), "due": column(soon, unit)}
    )
    kept = batch["timestamp"].to_pylist()
    for data in (
        batch,
        pa.table(batch),
        batch.to_pandas(),
        pa.RecordBatchReader.from_batches(batch.schema, [batch]),
    ):
        channel.publish_batch(data, routing_key=queue)
        assert store.queue_status(queue).messages_delayed == 1
        rows = channel.get_batch(queue)
        assert rows["body"].to_pylist() == [b"1"]
        browsed = pa.Table.from_batches(store.browse(queue))["timestamp"].drop_null()
        assert [int(each.timestamp()) for each in browsed.to_pylist()] == [MOMENT]
        channel.queue_purge(queue)
    assert batch["timestamp"].to_pylist() == kept
    store.queue("put").put_many(batch)
    assert store.queue_status("put").messages_delayed == 1
    with pyqstore.StagedWriter(stage / "file.qsb") as writer:
        writer.write_batch(batch.drop_columns(["due"]))
    (staged,) = pyqstore.read_staged(stage / "file.qsb")
    assert staged["timestamp"][0].as_py().timestamp() == MOMENT


def test_a_naive_column_is_the_clients_local_time(store: pyqstore.Store) -> None:
    from pyqstore.flight.sending import stream_of

    for unit, factor in UNITS.items():
        schema, batches = stream_of(pa.table({"body": [b"", b""], "due": column(SHOWN, unit)}))
        (batch,) = batches
        assert batch.schema == schema
        assert batch["due"].cast(pa.int64()).to_pylist() == [MOMENT * factor, None]


def test_each_hour_of_the_year_is_what_python_says(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    """The hour that is shown twice, and that which is never shown, too."""
    shown = [datetime(2026, 1, 1, 0, 30) + timedelta(hours=hour) for hour in range(366 * 24)]
    batch = pa.record_batch(
        {"body": [b""] * len(shown), "timestamp": pa.array(shown, pa.timestamp("s"))}
    )
    channel.publish_batch(batch, routing_key=queue)
    moments = [int(each.timestamp()) for each in shown]
    found = channel.get_batch(queue, len(shown))["timestamp"].cast(pa.int64()).to_pylist()
    assert found == moments
    epoch = datetime(1970, 1, 1)
    assert [utc_of(int((each - epoch).total_seconds())) for each in shown] == moments


def zones(schema: pa.Schema) -> dict[str, str | None]:
    return {field.name: field.type.tz for field in schema if pa.types.is_timestamp(field.type)}


def test_every_column_of_times_has_its_zone(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str, stage: Path
) -> None:
    batch = pa.record_batch({"body": [b""], "timestamp": pa.array([5], pa.timestamp("s", "UTC"))})
    channel.publish_batch(batch, routing_key=queue)
    stream = store.stream("log")
    stream.publish_batch(batch)
    with pyqstore.StagedWriter(stage / "file.qsb") as writer:
        writer.write_batch(batch)
    with store.stream_consumer("log", "group") as consumer:
        polled = [consumer.poll(timeout=60).schema, consumer.poll(timeout=0).schema]

    from pyqstore.aio.batches import no_messages

    given = {
        "get_batch": channel.get_batch(queue).schema,
        "get_batch of nothing": channel.get_batch(queue).schema,
        "get_batch of nothing, in a loop": no_messages().schema,
        "browse": next(iter(store.browse(queue))).schema,
        "read": stream.read().schema,
        "poll": polled[0],
        "poll of nothing": polled[1],
        "read_staged": next(iter(pyqstore.read_staged(stage / "file.qsb"))).schema,
    }
    for name, schema in given.items():
        assert set(zones(schema).values()) == {"UTC"}, name
    assert zones(given["read"]).keys() == {"timestamp", "message_timestamp"}


def test_a_file_is_imported_as_local_time_unless_an_earlier_version_exported_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "file.parquet"
    shown = pa.array([SHOWN], pa.timestamp("ms"))

    def imported(columns: dict[str, Any]) -> int | None:
        pq.write_table(pa.table({"body": [b""], "timestamp": shown, **columns}), file)
        (message,) = ParquetSource(file, 0, False)
        return message.properties.timestamp

    assert imported({}) == MOMENT
    in_utc = int(SHOWN.replace(tzinfo=UTC).timestamp())
    assert imported({"properties_amqp": pa.array([None], pa.binary())}) == in_utc


def test_a_work_queue_in_definitions_begins_at_the_same_time(store: pyqstore.Store) -> None:
    """A number would be an offset."""
    store.stream("log")
    start = datetime(2026, 1, 31, 12)
    arguments: Any = {"x-stream-source": "log", "x-stream-offset": start}
    with store.channel() as channel:
        channel.queue_declare("work", durable=True, arguments=arguments)
    told = json.loads(json.dumps(declared(store)))
    (entry,) = (each for each in told["queues"] if each["name"] == "work")
    assert entry["arguments"]["x-stream-offset"] == time_text(start)
    for entry in told["queues"]:
        entry["vhost"] = "/"
    with pyqstore.open(":memory:") as other:
        declare(other, parse_definitions({"queues": told["queues"]}, "/"))
        with other.channel() as channel:
            channel.queue_declare("work", passive=True)


def test_a_year_that_no_clock_shows_is_refused_or_taken_as_it_is() -> None:
    with pytest.raises(ValueError, match="before 1970"):
        encode_table({"when": datetime.min})
    assert encode_table({"when": datetime.max})
    assert utc_of(2**62) == 2**62
    pandas = pytest.importorskip("pandas")
    shown = pandas.Timestamp(SHOWN)
    assert pyqstore.Properties(timestamp=shown).timestamp == MOMENT
    with pytest.raises(ValueError, match="NaT is no time"):
        pyqstore.Properties(timestamp=pandas.NaT)


def test_the_zone_of_these_tests_is_not_utc() -> None:
    assert os.environ["TZ"] == ZONE
    assert SHOWN.timestamp() != SHOWN.replace(tzinfo=UTC).timestamp()


def test_a_work_queue_is_declared_again_with_its_time_however_that_was_written(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    """Earlier versions stored whole seconds for the same program."""
    store.stream("s")
    half = datetime(2026, 1, 1, 12, 0, 0, 500_000, tzinfo=UTC)
    whole = half.replace(microsecond=0)

    def declare(queue: str, start: Any) -> None:
        arguments = {"x-stream-source": "s", "x-stream-offset": start}
        channel.queue_declare(queue, durable=True, arguments=arguments)

    for start in (whole, half, "2026-01-01T12:00:00.500000Z"):
        declare("w", start)
    for start in (half, "2026-01-01T12:00:00.5Z", whole):
        declare("exact", start)
    with pytest.raises(pyqstore.PreconditionFailed, match="inequivalent arg 'x-stream-offset'"):
        declare("exact", half.replace(microsecond=500_001))


def test_the_fraction_of_a_start_travels_to_a_client_of_flight(store: pyqstore.Store) -> None:
    store.stream("s")
    half = datetime(2026, 1, 1, 12, 0, 0, 500_000, tzinfo=UTC)
    arguments: dict[str, Any] = {"x-stream-source": "s", "x-stream-offset": half}
    with (
        pyqstore.flight.serve(store) as server,
        pyqstore.connect(f"grpc://{server.address}") as client,
    ):
        client.queue_declare("w", durable=True, arguments=arguments)
    with store.channel() as channel:
        channel.queue_declare("w", durable=True, arguments=arguments)
        arguments["x-stream-offset"] = half.replace(microsecond=500_001)
        with pytest.raises(pyqstore.PreconditionFailed):
            channel.queue_declare("w", durable=True, arguments=arguments)

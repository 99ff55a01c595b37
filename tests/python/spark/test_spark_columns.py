"""spark_udfs.columns and spark_udfs.options: what is refused, in which words; no Spark needed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spark_udfs.columns import PROPERTIES, ColumnError, check_columns, shape_batch
from spark_udfs.options import OptionError, WriteOptions

STRINGS = ["varchar(36)", "string collate UTF8_LCASE", "char(3)", "string"]


def test_check_columns_accepts_every_known_column() -> None:
    check_columns(
        [("body", "binary"), *((name, each.types[0]) for name, each in PROPERTIES.items())]
    )
    for type_ in STRINGS:
        check_columns([("body", "string"), ("message_id", type_)])


def test_numbers_of_any_width_and_columns_of_nulls_are_taken() -> None:
    """As those of Arrow: ``lit(None)`` is of type void, and a literal of a sum bigint."""
    check_columns([("body", "string"), ("priority", "bigint"), ("delivery_mode", "bigint")])
    check_columns([("body", "string"), *((name, "void") for name in PROPERTIES)])
    nulls = {name: pa.nulls(2) for name in PROPERTIES if name != "priority"}
    priority = pa.array([None, 9], pa.int64())
    batch = pa.RecordBatch.from_pydict({"body": ["a", "b"], "priority": priority, **nulls})
    shaped = shape_batch(batch)
    assert shaped.schema.names == ["body", "priority"]
    assert shaped["priority"].to_pylist() == [None, 9]
    assert shape_batch(batch.drop_columns(["priority"])).schema.names == ["body"]
    too_much = pa.RecordBatch.from_pydict({"body": ["a"], "priority": pa.array([256])})
    with pytest.raises(ColumnError, match="'priority' is 256 in row 0"):
        shape_batch(too_much)


def test_columns_of_a_delivery_are_left_out() -> None:
    names = ["delivery_tag", "redelivered", "delivery_count", "sequence", "unacked", "delayed"]
    check_columns([("body", "binary"), *((name, "bigint") for name in names)])
    batch = pa.RecordBatch.from_pydict({"body": ["a"], **{name: [1] for name in names}})
    assert shape_batch(batch).schema.names == ["body"]
    check_columns([("sequence", "string")], body="sequence")
    assert shape_batch(batch.select(["unacked"]), body="unacked").schema.names == ["body"]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ([("routing_key", "string")], ["'body'", "missing", "'routing_key'"]),
        ([("Body", "string")], ["'body'", "missing", "did you mean 'Body'"]),
        ([("body", "bigint")], ["'body'", "bigint", "binary or string"]),
        ([("body", "string"), ("prority", "int")], ["'prority'", "did you mean 'priority'"]),
        ([("body", "string"), ("priority", "string")], ["'priority'", "smallint, int or bigint"]),
        ([("body", "string"), ("priority", "double")], ["'priority'", "double"]),
        ([("body", "void")], ["'body'", "void", "binary or string"]),
        (
            [("body", "string"), ("headers", "map<string,int>")],
            ["'headers'", "map<string, string>"],
        ),
        ([("body", "string"), ("timestamp", "timestamp_ntz")], ["'timestamp'", "timestamp_ntz"]),
        ([("body", "string"), ("expiration_ms", "double")], ["'expiration_ms'", "double"]),
        ([("body", "string"), ("body", "string")], ["'body'", "2 times"]),
        ([("body", "int"), ("app_id", "int")], ["'body'", "'app_id'"]),
    ],
)
def test_check_columns_names_the_wrong_column(
    columns: list[tuple[str, str]], words: list[str]
) -> None:
    with pytest.raises(ColumnError) as refused:
        check_columns(columns)
    for word in words:
        assert word in str(refused.value)


def test_check_columns_takes_another_column_for_the_body() -> None:
    check_columns([("payload", "binary")], body="payload")
    with pytest.raises(ColumnError, match=r"'body' is not known .the bodies come from 'payload'"):
        check_columns([("payload", "binary"), ("body", "binary")], body="payload")


def test_rows_of_a_stream_keep_the_timestamp_that_is_a_property() -> None:
    batch = pa.RecordBatch.from_pydict({"timestamp": [1], "body": ["a"], "message_timestamp": [2]})
    shaped = shape_batch(batch)
    assert shaped.to_pydict() == {"body": ["a"], "timestamp": [2]}
    assert shape_batch(batch.select(["body", "timestamp"]))["timestamp"].to_pylist() == [1]


def test_shape_batch_renames_the_body_and_narrows_small_integers() -> None:
    shaped = shape_batch(
        pa.RecordBatch.from_pydict(
            {
                "payload": pa.array([b"a", b""]),
                "priority": pa.array([9, None], pa.int32()),
                "delivery_mode": pa.array([1, 2], pa.int8()),
                "expiration_ms": pa.array([0, 5], pa.int16()),
            }
        ),
        body="payload",
    )
    assert shaped.schema.names == ["body", "priority", "delivery_mode", "expiration_ms"]
    assert shaped.column("priority").type == shaped.column("delivery_mode").type == pa.uint8()
    assert shaped.column("priority").to_pylist() == [9, None]


def test_shape_batch_refuses_what_would_not_outlive_the_store() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"body": pa.array(["a", "b"]), "delivery_mode": pa.array([2, 1], pa.int8())}
    )
    assert shape_batch(batch).num_rows == 2
    with pytest.raises(ColumnError, match="'delivery_mode' is 1 in row 1, expected 2"):
        shape_batch(batch, outlives=True)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("body", pa.array(["x", "y", None]), "'body' is null in row 102"),
        ("priority", pa.array([1, 2, 256], pa.int32()), "'priority' is 256 in row 102"),
        ("priority", pa.array([1, -1, 0], pa.int8()), "'priority' is -1 in row 101"),
        ("delivery_mode", pa.array([1, 2, 3], pa.int8()), "'delivery_mode' is 3 in row 102"),
        ("expiration_ms", pa.array([-5, 0, 0], pa.int64()), "'expiration_ms' is -5 in row 100"),
        ("routing_key", pa.array(["", "é" * 128, ""]), "'routing_key' has 256 bytes in row 101"),
        ("priority", pa.array([1.0, 2.0, 3.0]), "'priority' is double"),
    ],
)
def test_shape_batch_names_column_and_row(name: str, values: pa.Array, words: str) -> None:
    columns = {"body": pa.array(["a", "b", "c"]), name: values}
    with pytest.raises(ColumnError, match=words):
        shape_batch(pa.RecordBatch.from_pydict(columns), first_row=100)


def test_options_have_defaults() -> None:
    options = WriteOptions.parse({"path": "/data/store.qs"})
    assert (options.path, options.exchange, options.routing_key) == ("/data/store.qs", "", None)
    assert (options.body, options.txnid, options.mandatory) == ("body", None, True)
    assert not options.create


def test_options_are_read_whatever_their_case() -> None:
    given = {"PATH": "file:///data/a%20b", "Mandatory": "FALSE", "Create": "true"}
    options = WriteOptions.parse({**given, "lock_timeout": "2.5", "txnId": "t"})
    assert (options.path, options.mandatory, options.create) == ("/data/a b", False, True)
    assert (options.lock_timeout, options.txnid) == (2.5, "t")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "'path' is missing"),
        ({"path": "/s", "routingkey": "x"}, "'routingkey' .*did you mean 'routing_key'.*txnid"),
        ({"path": "/s", "mandatory": "yes"}, "'mandatory' is 'yes', expected true or false"),
        ({"path": "/s", "lock_timeout": "soon"}, "'lock_timeout' is 'soon', expected seconds"),
        ({"path": "/s", "lock_timeout": "-1"}, "'lock_timeout'"),
        ({"path": "/s", "txnid": ""}, "'txnid' is empty"),
        ({"path": "s3://bucket/store"}, "directory"),
        ({"path": "hdfs:/data/store"}, "not at an address of hdfs"),
        ({"path": "dbfs:/data/store"}, "not at an address of dbfs"),
    ],
)
def test_options_name_what_is_wrong(given: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        WriteOptions.parse(given)

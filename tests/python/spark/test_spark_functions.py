"""Columns of Spark against the store: each gives what the engine does."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
import spark_udfs
from pyqstore.codec import crc32c, crc32c_column, shard_column

KEYS = ["", "a", "a.b", "a.b.c", "b", "a..b", ".", "..", "a.x+y", "é.b", "*", "#", "a.*", "a\nb.c"]
PATTERNS = [
    "",
    "#",
    "*",
    "a.#",
    "#.b",
    "*.b",
    "a.*.c",
    "#.#",
    "a.#.b.#",
    "*.*",
    ".",
    "a.x+y",
    "é.*",
    "#.*",
]


@pytest.fixture
def channel() -> Iterator[pyqstore.Channel]:
    with pyqstore.open(":memory:") as store, store.channel() as channel:
        yield channel


def leads(channel: pyqstore.Channel, key: str, headers: dict[str, str] | None = None) -> bool:
    """Whether the exchange "x" leads such a message to the queue "q"."""
    channel.basic_publish("x", key, b"", pyqstore.Properties(headers=headers))
    return channel.queue_purge("q") > 0


# ---- columns of Arrow ----


@pytest.mark.parametrize(
    "type_",
    [pa.string(), pa.binary(), pa.large_string(), pa.large_binary(), pa.string_view()],
    ids=str,
)
def test_checksums_of_a_column(type_: pa.DataType) -> None:
    values = ["", "123456789", None, "é" * 100]
    column = pa.array(values, type_)
    expected = [None if value is None else crc32c(value.encode()) for value in values]
    assert crc32c_column(column).to_pylist() == expected
    assert crc32c_column(column.slice(1, 2)).to_pylist() == expected[1:3]
    assert crc32c_column(column.slice(0, 0)).to_pylist() == []
    assert crc32c_column(pa.array([], type_)).type == pa.int64()
    if pa.types.is_string(type_):
        assert crc32c_column(column.dictionary_encode()).to_pylist() == expected


def test_columns_that_are_no_strings_are_refused() -> None:
    with pytest.raises(TypeError, match="not int64"):
        crc32c_column(pa.array([1]))
    for wrong in (0, -1, 2**31):
        with pytest.raises(ValueError, match="shards is"):
            shard_column(pa.array(["a"]), wrong)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_shards_are_where_a_consistent_hash_exchange_leads(
    channel: pyqstore.Channel, count: int
) -> None:
    channel.exchange_declare("x", "x-consistent-hash")
    for number in range(count):
        channel.queue_declare(f"q{number}")
        channel.queue_bind(f"q{number}", "x", "1")
    keys = [f"key {number}" for number in range(200)] + ["", "é"]
    channel.publish_batch(pa.record_batch({"body": keys, "routing_key": keys}), "x")
    found = dict(zip(keys, shard_column(pa.array(keys), count).to_pylist(), strict=True))
    for number in range(count):
        bodies = channel.get_batch(f"q{number}", auto_ack=True)["body"].to_pylist()
        assert {found[body.decode()] for body in bodies} <= {number}
        assert len(bodies) == sum(1 for shard in found.values() if shard == number)


# ---- under Spark ----


@pytest.mark.spark
def test_checksums_and_shards_in_spark(spark: Any) -> None:
    keys = [f"key {number}" for number in range(3000)]
    frame = spark.createDataFrame([(key,) for key in [*keys, None]], "key string")
    rows = frame.select(
        "key", spark_udfs.crc32c("key").alias("crc"), spark_udfs.shard("key", 5).alias("shard")
    ).collect()
    shards = dict(zip(keys, shard_column(pa.array(keys), 5).to_pylist(), strict=True))
    for row in rows:
        if row.key is None:
            assert (row.crc, row.shard) == (None, None)
        else:
            assert (row.crc, row.shard) == (crc32c(row.key.encode()), shards[row.key])
    with pytest.raises(ValueError, match="shards is 0"):
        spark_udfs.shard("key", 0)


@pytest.mark.spark
def test_route_matches_as_a_topic_exchange_does(spark: Any, channel: pyqstore.Channel) -> None:
    channel.queue_declare("q")
    channel.exchange_declare("x", "topic")
    chosen = random.Random(7)
    words = ["a", "b", "*", "#", ""]
    patterns = PATTERNS + [
        ".".join(chosen.choices(words, k=chosen.randint(1, 5))) for _ in range(40)
    ]
    keys = [*KEYS, "a\n", "a.b\n"] + [
        ".".join(chosen.choices("ab", k=chosen.randint(1, 6))) for _ in range(40)
    ]
    frame = spark.createDataFrame([(key,) for key in keys], "key string")
    row_of = frame.select(
        "key",
        *(spark_udfs.route_matches("key", text).alias(f"p{n}") for n, text in enumerate(patterns)),
    ).collect()
    for number, pattern in enumerate(patterns):
        channel.queue_bind("q", "x", pattern)
        for row in row_of:
            assert row[f"p{number}"] == leads(channel, row.key), (pattern, row.key)
        channel.queue_unbind("q", "x", pattern)


@pytest.mark.spark
def test_headers_match_as_a_headers_exchange_does(spark: Any, channel: pyqstore.Channel) -> None:
    channel.queue_declare("q")
    channel.exchange_declare("x", "headers")
    messages: list[dict[str, str] | None] = [
        None,
        {},
        {"a": "1"},
        {"a": "2"},
        {"a": "1", "b": "1"},
        {"x-a": "1"},
        {"b": ""},
    ]
    wanted: list[dict[str, str | None]] = [
        {},
        {"a": "1"},
        {"a": None},
        {"a": "1", "b": "1"},
        {"x-a": "1"},
        {"x-a": "1", "b": ""},
    ]
    cases = [(want, mode) for want in wanted for mode in ("all", "any", "all-with-x", "any-with-x")]
    frame = spark.createDataFrame(list(enumerate(messages)), "n int, headers map<string,string>")
    rows = frame.select(
        "n",
        *(
            spark_udfs.headers_match("headers", *case).alias(f"c{n}")
            for n, case in enumerate(cases)
        ),
    ).collect()
    for number, (want, mode) in enumerate(cases):
        arguments: Any = {**want, "x-match": mode}
        channel.queue_bind("q", "x", "", arguments)
        for row in rows:
            assert row[f"c{number}"] == leads(channel, "", messages[row.n]), (want, mode, row)
        channel.queue_unbind("q", "x", "", arguments)
    with pytest.raises(ValueError, match="match is 'some'"):
        spark_udfs.headers_match("headers", {}, "some")


@pytest.mark.spark
def test_embeds_counts_properties_and_body(spark: Any) -> None:
    rows = [
        (bytearray(96), "x" * 4000),
        (bytearray(95), "x" * 4000),
        (None, "x" * 4095),
        (None, "é" * 2048),
    ]
    frame = spark.createDataFrame(rows, "properties binary, body string")
    found = frame.select(spark_udfs.embeds("properties", "body").alias("is")).collect()
    assert [row["is"] for row in found] == [False, True, True, False]
    found = frame.select(spark_udfs.embeds("properties", "body", 5000).alias("is")).collect()
    assert [row["is"] for row in found] == [True, True, True, True]

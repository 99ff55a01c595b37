"""``codec.check_rows`` against the engine: the function checks batches made by chance, and a store
in memory publishes them.  Both take a batch, or both refuse it in the same words."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
from pyqstore import PreconditionFailed
from pyqstore.codec import check_rows
from pyqstore.columns import COLUMNS, IGNORED

Publish = Callable[[pa.RecordBatch], str | None]
BATCHES = 3000
TEXTS = [None, "", "a", "é" * 127, "x" * 255, "x" * 256, "é" * 128]
NUMBERS = [None, 0, 1, 2, 3, 9, 255, 256, -1, 2**32 - 2, 2**32 - 1, 2**62, 2**63 - 1, -(2**63)]
KEYS = ["k", "CC", "BCC", "cc", "x" * 255, "x" * 256, ""]
TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.binary()]
NUMBER_TYPES = [pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.int64(), pa.float64()]
TIME_TYPES = [
    pa.timestamp("s", "UTC"), pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC"),
    pa.timestamp("ns", "UTC"), pa.int64(), pa.float64(),
]  # fmt: skip
HEADERS = pa.map_(pa.string(), pa.string())


@pytest.fixture
def refusal() -> Iterator[Publish]:
    """The engine's words about a batch, which it publishes in a transaction; None: it takes it."""
    with pyqstore.open(":memory:") as store:
        store.channel().queue_declare("q")

        def publish(batch: pa.RecordBatch) -> str | None:
            with store.channel() as channel:
                channel.tx_select()
                try:
                    channel.publish_batch(batch, "", "q")
                except (ValueError, pyqstore.ChannelError) as error:
                    return str(error)
                channel.tx_rollback()
            return None

        yield publish


def words_of(batch: pa.RecordBatch, first_row: int = 0) -> str | None:
    try:
        check_rows(batch, first_row)
    except (ValueError, PreconditionFailed) as error:
        return str(error)
    return None


def values(chance: random.Random, rows: int, all_values: list[Any]) -> list[Any]:
    """Mostly one value, so that many batches have one thing wrong, or nothing."""
    usual = chance.choice(all_values if chance.random() < 0.2 else all_values[:4])
    return [chance.choice(all_values) if chance.random() < 0.1 else usual for _ in range(rows)]


def numbers(chance: random.Random, rows: int, type_: pa.DataType) -> pa.Array:
    """Numbers that the type cannot have are null."""
    made = values(chance, rows, NUMBERS)
    if pa.types.is_timestamp(type_):
        return pa.array(made, pa.int64()).view(type_)
    unsigned = pa.types.is_unsigned_integer(type_)
    bits = type_.bit_width - (0 if unsigned else 1)
    low, high = 0 if unsigned else -(2**bits), 2**bits - 1
    kept = [each if each is not None and low <= each <= high else None for each in made]
    return pa.array(kept, pa.int64()).cast(type_, safe=False)


def texts(chance: random.Random, rows: int) -> pa.Array:
    made = pa.array(values(chance, rows, TEXTS), pa.string())
    how = chance.random()
    if how < 0.2:
        return made.dictionary_encode()
    return made.cast(chance.choice(TEXT_TYPES)) if how < 0.6 else made


def headers(chance: random.Random, rows: int) -> pa.Array:
    made = []
    for _ in range(rows):
        keys = [chance.choice(KEYS[: 1 if chance.random() < 0.9 else None])]
        made.append(
            None if chance.random() < 0.1 else [(key, chance.choice("abc")) for key in keys]
        )
    if chance.random() < 0.2:
        return pa.array([dict(each or ()) for each in made], pa.struct([("k", pa.string())]))
    return pa.array(made, HEADERS)


def column(chance: random.Random, name: str, rows: int) -> pa.Array:
    if chance.random() < 0.03:
        return pa.nulls(rows)
    if name == "body":
        some = [b"", b"x", b"yy" * 40, b"z"] + ([None] if chance.random() < 0.2 else [])
        made = pa.array(values(chance, rows, some), pa.binary())
        return made.dictionary_encode() if chance.random() < 0.2 else made
    if name == "headers":
        return headers(chance, rows)
    if name in ("priority", "delivery_mode", "expiration_ms"):
        return numbers(chance, rows, chance.choice(NUMBER_TYPES))
    if name in ("timestamp", "message_timestamp", "due"):
        return numbers(chance, rows, chance.choice(TIME_TYPES))
    return texts(chance, rows)


def batch_of(chance: random.Random) -> pa.RecordBatch:
    """Of the columns that there are, and now and then of one that there is not."""
    known = [each.name for each in COLUMNS if each.name not in ("exchange", "routing_key")]
    names = ["body", *chance.sample(known, chance.randrange(4))]
    if chance.random() < 0.9:
        names = list(dict.fromkeys(names))
    if chance.random() < 0.03:
        names[chance.randrange(len(names))] = "bodi"
    chance.shuffle(names)
    rows = chance.choice([0, 1, 2, 7, 30])
    batch = pa.RecordBatch.from_arrays([column(chance, name, rows) for name in names], names=names)
    return batch.slice(chance.randrange(rows)) if rows and chance.random() < 0.3 else batch


def test_the_check_says_what_the_engine_says(refusal: Publish) -> None:
    chance = random.Random(20)
    said = set()
    for _ in range(BATCHES):
        batch = batch_of(chance)
        words = refusal(batch)
        assert words_of(batch) == words, batch
        said.add(words)
    assert None in said
    told = " ".join(sorted(filter(None, said)))
    for part in (
        "unacceptable_type_in_header",
        "unknown column",
        "two columns",
        "invalid expiration",
        "in more than 100 years",
        "bytes",
        "null",
    ):
        assert part in told
    assert len(said) > 100


@pytest.mark.parametrize("large", ["body", "headers"])
def test_a_message_that_is_too_large_is_refused_as_the_engine_refuses_it(
    refusal: Publish, large: str
) -> None:
    much = "x" * (128 << 20)
    bodies = [b"", much.encode() + b"x"] if large == "body" else [b"", b""]
    tables = [None, [("k", much)]] if large == "headers" else [None, None]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(bodies, pa.binary()), pa.array(tables, HEADERS)], names=["body", "headers"]
    )
    words = refusal(batch)
    assert words is not None
    assert "row 1" in words
    assert words_of(batch) == words
    assert words_of(batch, 40) == words.replace("row 1", "row 41")


def test_rows_count_from_the_first_row() -> None:
    early = datetime(1969, 12, 31, tzinfo=UTC)
    times = pa.array([None, early], pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays([pa.array(["a", "b"]), times], names=["body", "timestamp"])
    words = words_of(batch, 100)
    assert words is not None
    assert "row 101" in words
    assert words_of(batch.slice(0, 1), 100) is None


def test_columns_of_a_received_batch_are_taken() -> None:
    arrays = {"body": pa.array([b""])}
    arrays |= {each.name: pa.array([0]) for each in COLUMNS if each.published == IGNORED}
    assert words_of(pa.RecordBatch.from_pydict(arrays)) is None

"""The engine's table of Arrow columns is what batches have, and what the documents say."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyqstore
from pyqstore import columns
from pyqstore._ffi import ffi, lib
from spark_udfs.columns import BODY, PROPERTIES

from ..documents import ROOT

CALLS = {
    columns.DELIVERED: "`get_batch`",
    columns.BROWSED: "`browse`",
    columns.STREAM: "`Stream.read`",
    columns.POLLED: "`poll`",
}
ALL = columns.DELIVERED | columns.BROWSED | columns.STREAM
DICTIONARY = "dictionary<values=string, indices=int32, ordered=0>"
WORDS = {DICTIONARY: "dictionary<int32, string>"}


def table(document: str, heading: str) -> Iterator[list[str]]:
    """The cells of the rows, without its head, of the first table behind a heading."""
    text = (ROOT / "docs" / document).read_text().partition(f"\n{heading}\n")[2]
    rows = text.partition("\n|---|")[2].partition("\n")[2].partition("\n\n")[0]
    for row in rows.splitlines():
        yield [cell.strip() for cell in row.strip("|").split("|")]


def names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def type_of(column: columns.Column) -> str:
    """As the document has it."""
    if column.received == columns.POLLED:
        return WORDS[DICTIONARY]
    batch = next(each for each in CALLS if column.received & each)
    text = str(columns.schema_of(batch).field(column.name).type)
    return WORDS.get(text, text).replace("tz=", "")


def calls_of(column: columns.Column) -> str:
    if column.received == ALL:
        return "all"
    return ", ".join(call for each, call in CALLS.items() if column.received & each)


def test_the_document_has_the_received_columns() -> None:
    told = [
        (name, type_, calls, meaning)
        for cell, type_, calls, meaning in table("ARROW.md", "## Received")
        for name in names(cell)
    ]
    assert told == [
        (each.name, type_of(each), calls_of(each), each.meaning)
        for each in columns.COLUMNS
        if each.received
    ]


def test_the_document_has_the_published_columns() -> None:
    rows = list(table("ARROW.md", "## Published"))
    body, *others = [name for row in rows for name in names(row[0])]
    known = [each for each in columns.COLUMNS if each.published != columns.IGNORED]
    twice = "message_timestamp"  # the property timestamp of what a stream had
    assert body == "body"
    assert [name for name in others if name != "body"] == [
        each.name for each in known if each.published != columns.BODY and each.name != twice
    ]
    text = (ROOT / "docs/ARROW.md").read_text()
    ignored = text.partition("Columns of a batch that was received are ignored: ")[2]
    assert set(names(ignored.partition(";")[0])) == {*columns.PLACES, "stream"}


def test_the_document_of_spark_has_its_columns() -> None:
    told = {
        name: types.partition(":")[0].split(", ")
        for cell, types in table("SPARK.md", "Columns, as Spark names their types:")
        for name in names(cell)
    }
    assert told == {name: list(known.types) for name, known in {"body": BODY, **PROPERTIES}.items()}


def test_batches_have_the_schemas_of_the_table(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"x")
    (browsed,) = store.browse("q")
    assert browsed.schema == columns.schema_of(columns.BROWSED)
    for _ in range(2):  # with a row, and without
        taken = channel.get_batch("q", auto_ack=True)
        assert taken.schema == columns.schema_of(columns.DELIVERED)
    stream = store.stream("s")
    assert stream.read().schema == columns.schema_of(columns.STREAM)
    picked = [each.name for each in columns.COLUMNS if each.received & columns.STREAM]
    assert stream.read(columns=picked).schema.names == picked


def test_a_schema_of_parts_has_no_other_columns() -> None:
    parts = {each.part for each in columns.COLUMNS if each.received & columns.STREAM} - {0}
    assert len(parts) == 5
    for part in parts:
        assert columns.schema_of(columns.STREAM, part).names == [
            each.name
            for each in columns.COLUMNS
            if each.received & columns.STREAM and each.part in (0, part)
        ]


def test_the_table_ends() -> None:
    assert lib.qs_column_at(len(columns.COLUMNS)) == ffi.NULL
    assert lib.qs_column_at(2**63) == ffi.NULL

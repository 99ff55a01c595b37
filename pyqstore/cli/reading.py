"""Files that ``import`` reads: their rows as messages, one after the other.

What is wrong with a row is a BadRow, which names file, row and column.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from ..codec import check_properties
from ..columns import PLACES
from ..control.messages import PACK_MESSAGES, Seen
from ..properties import Properties
from ..times import utc_of
from . import columns

if TYPE_CHECKING:
    import pyarrow

__all__ = ["BadRow", "LinesSource", "ParquetSource", "Source"]

_BATCH_BYTES = 16 << 20
_BUFFER_BYTES = 1 << 20
_LINE_BYTES_MAX = 1 << 30
_KEY_BYTES_MAX = 255
# What tells where a message was, and when: it is another message afterwards.
_PASSED_OVER = frozenset(PLACES)
_ROUTES = frozenset({"exchange", "routing_key"})
_FIELDS = frozenset(
    {"body", "body_base64", "properties", "timestamp", columns.AMQP_BASE64, *_ROUTES, *_PASSED_OVER}
)
_PARQUET_PROPERTIES = frozenset({*columns.PROPERTIES, "expiration_ms"}) - {"expiration"}
_COLUMNS = frozenset(
    {"body", "message_timestamp", columns.AMQP, *_ROUTES, *_PASSED_OVER, *_PARQUET_PROPERTIES}
)
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class BadRow(ValueError):
    """A row that is no message."""


class _Wrong(Exception):
    """What is wrong with a column of a row."""

    def __init__(self, column: str, problem: object) -> None:
        super().__init__(f"column {column}: {problem}")


class Source(Protocol):
    """What messages come from."""

    done: int
    """How much of it was read, of
    ``total``, in rows or bytes."""
    total: int

    def __iter__(self) -> Iterator[Seen]:
        """Its messages; BadRow: the next one is none."""


class LinesSource:
    """JSON lines: objects of the form that ``export`` writes.  Empty lines are passed over."""

    def __init__(self, path: Path, skip: int, ignores: bool) -> None:
        self._path = path
        self._skip = skip
        self._ignores = ignores
        self.done: int = 0
        self.total: int = 0

    def __iter__(self) -> Iterator[Seen]:
        left = self._skip
        with self._opened() as file:
            for number, line in enumerate(iter(partial(file.readline, _LINE_BYTES_MAX), b""), 1):
                self.done += len(line)
                if line.isspace():
                    continue
                if left > 0:
                    left -= 1
                    continue
                try:
                    message = self._message(line)
                except _Wrong as error:
                    raise BadRow(f"{self._path}, line {number}, {error}") from None
                except (ValueError, RecursionError) as error:
                    raise BadRow(f"{self._path}, line {number}: {error}") from None
                yield message

    def _opened(self) -> contextlib.AbstractContextManager[IO[bytes]]:
        if str(self._path) == "-":
            return contextlib.nullcontext(sys.stdin.buffer)
        self.total = self._path.stat().st_size
        return open(self._path, "rb")

    def _message(self, line: bytes) -> Seen:
        if len(line) == _LINE_BYTES_MAX:
            raise ValueError(f"longer than {_LINE_BYTES_MAX} bytes: this is not JSON lines")
        row = json.loads(line)
        if not isinstance(row, dict):
            raise ValueError(f"a message is a JSON object, not {row!r:.80}")
        unknown = sorted(row.keys() - _FIELDS)
        if unknown and not self._ignores:
            raise _Wrong(unknown[0], f"there is no such field: there are {_listed(_FIELDS)}")
        return Seen(_json_body(row), _json_properties(row), "", _routing_key(row))


class ParquetSource:
    """Parquet, with the columns that ``export`` writes, or some of them."""

    def __init__(self, path: Path, skip: int, ignores: bool) -> None:
        import pyarrow
        import pyarrow.parquet

        self._path = path
        self._skip = skip
        try:
            self._file = pyarrow.parquet.ParquetFile(
                path, buffer_size=_BUFFER_BYTES, pre_buffer=False
            )
        except pyarrow.ArrowException as error:
            raise ValueError(f"{path}: no whole Parquet file: {error}") from None
        self.done: int = 0
        self.total: int = self._file.metadata.num_rows
        names = set(self._file.schema_arrow.names)
        if len(names) < len(self._file.schema_arrow.names):
            raise ValueError(f"{path}: two columns have one name; it has {_listed(names)}")
        unknown = sorted(names - _COLUMNS)
        if "body" not in names:
            raise ValueError(f"{path}: it has no column body; it has {_listed(names)}")
        if unknown and not ignores:
            raise ValueError(
                f"{path}, column {unknown[0]}: a message has no such column (--ignore-unknown"
                f" passes over it); it has {_listed(_COLUMNS)}"
            )
        if "message_timestamp" in names:  # of a stream: timestamp is when it was published
            names.discard("timestamp")
        self._names = sorted(names & _COLUMNS - _PASSED_OVER - {"exchange"})

    def __iter__(self) -> Iterator[Seen]:
        with self._file:
            for batch in self._batches():
                values = {name: self._cells(batch.column(name)) for name in self._names}
                for index in range(len(batch)):
                    self.done += 1
                    if self.done <= self._skip:
                        continue
                    try:
                        row = {name: cells[index] for name, cells in values.items()}
                        message = _parquet_message(row)
                    except _Wrong as error:
                        raise BadRow(f"{self._path}, row {self.done}, {error}") from None
                    except (TypeError, ValueError, OverflowError) as error:
                        raise BadRow(f"{self._path}, row {self.done}: {error}") from None
                    yield message

    def _batches(self) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        for group in range(self._file.num_row_groups):
            about = self._file.metadata.row_group(group)
            most = _BATCH_BYTES * about.num_rows // max(1, about.total_byte_size)
            rows = max(1, min(PACK_MESSAGES, most))
            try:
                yield from self._file.iter_batches(rows, [group], self._names)
            except (pyarrow.ArrowException, OSError) as error:
                raise BadRow(
                    f"{self._path}, row {self.done + 1} or one behind it: {error}"
                ) from None

    def _cells(self, column: pyarrow.Array) -> list[Any]:
        """The values; times are seconds.  One without a zone is local, but for what earlier
        versions exported."""
        import pyarrow as pa

        if not pa.types.is_timestamp(column.type):
            cells: list[Any] = column.to_pylist()
            return cells
        unit = _UNITS[column.type.unit]
        ticks = column.cast(pa.int64()).to_pylist()
        is_local = column.type.tz is None and columns.AMQP not in self._names
        seconds_of = utc_of if is_local else int
        return [None if tick is None else seconds_of(tick // unit) for tick in ticks]


def _listed(names: frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(names))


def _parquet_message(row: dict[str, Any]) -> Seen:
    key, raw, body = _routing_key(row), row.pop(columns.AMQP, None), _body(row.pop("body"))
    row.pop("routing_key", None)
    if "message_timestamp" in row:
        row["timestamp"] = row.pop("message_timestamp")
    if row.get("headers") is not None:
        try:
            row["headers"] = columns.headers_of(row["headers"])
        except ValueError as error:
            raise _Wrong("headers", error) from None
    if raw is not None:
        decoded = _decoded(columns.AMQP, raw)
        there = columns.parquet_properties(decoded)
        _check_same(columns.AMQP, row, {name: there.get(name) for name in row})
        return Seen(body, decoded, "", key)
    if "expiration_ms" in row:
        row["expiration"] = row.pop("expiration_ms")
    given = {name: value for name, value in row.items() if value is not None}
    return Seen(body, _made(given), "", key)


def _json_body(row: Mapping[str, Any]) -> bytes:
    if ("body" in row) == ("body_base64" in row):
        raise _Wrong("body", "a message has either body or body_base64")
    if "body" in row:
        return _body(row["body"])
    return _unbased("body_base64", row["body_base64"])


def _body(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise _Wrong("body", f"must be text or bytes, not {value!r:.80}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise _Wrong("body", error) from None


def _json_properties(row: Mapping[str, Any]) -> Properties:
    given = row.get("properties", {})
    if not isinstance(given, dict):
        raise _Wrong("properties", f"must be an object, not {given!r:.80}")
    if columns.AMQP_BASE64 not in row:
        return _made(given)
    raw = _unbased(columns.AMQP_BASE64, row[columns.AMQP_BASE64])
    decoded = _decoded(columns.AMQP_BASE64, raw)
    if "properties" in row:
        _check_same(columns.AMQP_BASE64, given, columns.plain_properties(decoded))
    return decoded


def _unbased(name: str, value: Any) -> bytes:
    try:
        if not isinstance(value, str):
            raise ValueError(f"must be text, not {value!r:.80}")
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _Wrong(name, error) from None


def _decoded(name: str, raw: Any) -> Properties:
    try:
        check_properties(raw)
        return Properties.decode(raw)
    except (TypeError, ValueError) as error:
        raise _Wrong(name, error) from None


def _check_same(name: str, given: Mapping[str, Any], encoded: Mapping[str, Any]) -> None:
    """Whoever changes a property in the file is not to wonder why nothing came of it."""
    for each in sorted({*given, *encoded}):
        if given.get(each) != encoded.get(each):
            raise _Wrong(each, f"it is not what {name} says: take that away, or change both")


def _made(given: Mapping[str, Any]) -> Properties:
    """Properties from what a row says; persistent, if it says nothing of that."""
    try:
        return Properties(**{"delivery_mode": 2, **given})
    except (TypeError, ValueError):
        for name, value in given.items():
            _check_one(name, value)
        raise


def _check_one(name: str, value: Any) -> None:
    if name not in columns.PROPERTIES and name != "cluster_id":
        raise _Wrong(name, f"there is no such property: there are {_listed({*columns.PROPERTIES})}")
    try:
        Properties(**{name: value})
    except (TypeError, ValueError) as error:
        raise _Wrong(name, error) from None


def _routing_key(row: Mapping[str, Any]) -> str:
    key = row.get("routing_key")
    if key is None:
        return ""
    try:
        if isinstance(key, str) and len(key.encode("utf-8", "surrogateescape")) <= _KEY_BYTES_MAX:
            return key
    except UnicodeEncodeError:
        pass
    raise _Wrong("routing_key", f"must be text of {_KEY_BYTES_MAX} bytes at most, not {key!r:.80}")

"""Columns of Spark: the store's checksums, shards and routes without a store.

``crc32c`` and ``shard`` run in Python workers, on whole columns in C.  The others are plain
expressions that Spark's Java evaluates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # not for type checkers alone: Spark reads the hints of the functions

if TYPE_CHECKING:
    from pyspark.sql import Column

EMBED_BELOW = 4096
_MODES = ("all", "any", "all-with-x", "any-with-x")


def crc32c(column: Column | str) -> Column:
    """CRC-32C of each value, 0 to 2**32 - 1.

    Args:
        column: string or binary; null gives null.

    Returns: bigint.
    """
    return _of_rows(_checksums, column)


def shard(column: Column | str, shards: int) -> Column:
    """Which of ``shards`` queues or streams a key goes to, 0 to shards - 1.

    The same as an exchange of type ``x-consistent-hash`` whose destinations have equal weights; 0
    is the one that was bound first.

    Args:
        column: string or binary; null gives null.
        shards: 1 to 2**31 - 1.

    Returns: bigint.

    Raises:
        ValueError: another number of shards.
    """
    from pyspark.sql import functions as F  # noqa: N812

    if not 1 <= shards < 2**31:
        raise ValueError(f"shards is {shards}, expected 1 to {2**31 - 1}")
    return _of_rows(_shares, column, F.lit(shards))


def route_matches(key: Column | str, pattern: str) -> Column:
    """Whether a topic exchange leads a routing key to a binding with this pattern.

    Args:
        key: string; null gives null.
        pattern: words parted by dots; ``*`` is one word, ``#`` any number of them.

    Returns: boolean.
    """
    from pyspark.sql import functions as F  # noqa: N812

    text = _column(key)
    # Each word with a dot before it, so that a key without words is the empty text.
    dotted = F.when(text == F.lit(""), F.lit("")).otherwise(F.concat(F.lit("."), text))
    return dotted.rlike(_regular_expression(pattern))


def headers_match(
    headers: Column | str, wanted: Mapping[str, str | None], match: str = "all"
) -> Column:
    """Whether a headers exchange leads a message with these headers to such a binding.

    Args:
        headers: map<string,string>; null is a message without headers.
        wanted: the binding's arguments without x-match; None wants the header, whatever its value.
        match: all, any, all-with-x or any-with-x; without x, names that begin with "x-" are passed
            over.

    Returns: boolean, never null.

    Raises:
        ValueError: another match.
    """
    from pyspark.sql import functions as F  # noqa: N812

    if match not in _MODES:
        raise ValueError(f"match is '{match}', expected one of {', '.join(_MODES)}")
    counts = {
        name: value
        for name, value in wanted.items()
        if name != "x-match" and (match.endswith("-with-x") or not name.startswith("x-"))
    }
    column = _column(headers)
    agrees = [
        F.coalesce(
            F.map_contains_key(column, F.lit(name))
            if value is None
            else column.getItem(name) == F.lit(value),
            F.lit(False),
        )
        for name, value in counts.items()
    ]
    if match.startswith("all"):
        return reduce(and_, agrees, F.lit(True))
    return reduce(or_, agrees, F.lit(False))


def embeds(properties: Column | str, body: Column | str, below: int = EMBED_BELOW) -> Column:
    """Whether a message is embedded in the queue's index, and not written to the message store.

    Args:
        properties: binary, encoded as in an AMQP content header; null for none.
        body: binary or string; null gives null.
        below: the store's ``embed_below``.

    Returns: boolean.
    """
    from pyspark.sql import functions as F  # noqa: N812

    size = F.coalesce(F.octet_length(_column(properties)), F.lit(0))
    return size + F.octet_length(_column(body)) < F.lit(below)


def _regular_expression(pattern: str) -> str:
    words = pattern.split(".") if pattern else []
    parts = {"*": r"\.[^.]*", "#": r"(?:\.[^.]*)*"}
    return "^" + "".join(parts.get(word, r"\." + _quoted(word)) for word in words) + r"\z"


def _quoted(word: str) -> str:
    """Words of letters, digits and what no regular expression cares for stay readable."""
    return word if re.fullmatch(r"[\w ,:;/@-]*", word) else re.escape(word)


def _column(column: Column | str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.col(column) if isinstance(column, str) else column


def _checksums(column: pa.Array) -> pa.Array:
    """Runs in a Python worker."""
    from pyqstore.codec import crc32c_column

    return crc32c_column(column)


def _shares(column: pa.Array, shards: pa.Array) -> pa.Array:
    """Runs in a Python worker: a literal comes as a column, the same in each row."""
    from pyqstore.codec import shard_column

    return shard_column(column, shards[0].as_py()) if len(column) else shards


def _of_rows(function: Callable[..., pa.Array], *columns: Column | str) -> Column:
    import pyspark.sql.functions as spark

    functions: Any = spark  # its stubs do not know Arrow's
    made = functions.arrow_udf(function, "bigint")
    column: Column = made(*columns)
    return column

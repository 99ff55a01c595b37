"""Checks of received Arrow data: pyarrow's reader trusts the offsets and lengths that it gets."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

__all__ = ["check_batch"]


def check_batch(batch: pa.RecordBatch) -> None:
    """ValueError: a column refers to bytes outside the message.

    Nothing may read the batch before this check, not even ``nbytes``, which follows offsets.  For
    columns of values and of strings it compares the sizes of the buffers with their first and last
    offsets; nothing else of them is read until the engine has checked each row. pyarrow writes and
    compares other columns, and reads them doing so: each of their values is checked here.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=not _is_flat(column.type))
        except pa.ArrowException as error:
            raise ValueError(f"column {name!r} is damaged: {error}") from error


def _is_flat(kind: Any) -> bool:
    is_inside_another = pa.types.is_dictionary(kind) or isinstance(kind, pa.BaseExtensionType)
    return kind.num_fields == 0 and not is_inside_another

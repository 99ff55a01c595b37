"""Whether what arrived is Arrow data: its reader takes offsets and lengths as they are told."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

__all__ = ["check_batch"]


def check_batch(batch: pa.RecordBatch) -> None:
    """ValueError: a column names bytes that did not come with it.

    Nothing may read the batch before this, not even ``nbytes``, which follows offsets.  Of columns
    of values and of strings the sizes of their buffers are compared with their first and last
    offsets, which is all that is read of them until the engine has checked each row.  Others are
    written and compared by pyarrow, which looks into them: each of their values is checked here.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=not _is_flat(column.type))
        except pa.ArrowException as error:
            raise ValueError(f"column {name!r} is damaged: {error}") from error


def _is_flat(kind: Any) -> bool:
    is_inside_another = pa.types.is_dictionary(kind) or isinstance(kind, pa.BaseExtensionType)
    return kind.num_fields == 0 and not is_inside_another

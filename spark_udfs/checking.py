"""Rows looked at by the engine before they are staged, in the task that made them."""

from __future__ import annotations

import re
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .columns import ColumnError

if TYPE_CHECKING:
    import pyarrow as pa

_QUEUE = "rows"
_ROW = re.compile(r"\brow (\d+)")


class RowCheck:
    """Refuses what no store would take: dates before 1970, CC in headers, names that are too long.

    The engine judges, so that a task and a commit cannot differ: each batch is published in a
    transaction of a store in memory, which is rolled back.
    """

    def __init__(self) -> None:
        import pyqstore

        self._store = pyqstore.open(":memory:")
        self._channel = self._store.channel()
        self._channel.queue_declare(_QUEUE)
        self._channel.tx_select()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._store.close()

    def check(self, batch: pa.RecordBatch, *, first_row: int) -> None:
        """Raise ColumnError for a row of the batch that makes no message.

        ``first_row``: the number of the batch's first row, for the words of an error.
        """
        import pyqstore

        try:
            # Where rows go is the commit's to find out; exchange and key are strings that fit.
            names = [name for name in batch.schema.names if name not in ("exchange", "routing_key")]
            self._channel.publish_batch(batch.select(names), "", _QUEUE)
        except (ValueError, pyqstore.ChannelError) as error:
            raise ColumnError(renumbered(error, first_row)) from error
        self._channel.tx_rollback()


def renumbered(error: Exception, first_row: int) -> str:
    """The words of an error about a row of a batch whose first row has this number."""
    return _ROW.sub(lambda found: f"row {first_row + int(found[1])}", str(error), count=1)

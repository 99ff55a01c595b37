"""Record batches that are made without the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

__all__ = ["no_messages", "tags_of"]


def no_messages() -> pyarrow.RecordBatch:
    """The batch that ``get_batch`` returns if no message came, made without the channel, which is
    busy."""
    import pyarrow as pa

    name = pa.dictionary(pa.int32(), pa.string())
    texts = (
        "message_id",
        "correlation_id",
        "type",
        "app_id",
        "content_type",
        "content_encoding",
        "reply_to",
        "user_id",
    )
    schema = pa.schema(
        [
            ("delivery_tag", pa.uint64()),
            ("redelivered", pa.bool_()),
            ("exchange", name),
            ("routing_key", name),
            ("body", pa.binary()),
            ("headers", pa.map_(pa.string(), pa.string())),
            *((text, pa.string()) for text in texts),
            ("priority", pa.uint8()),
            ("delivery_mode", pa.uint8()),
            ("expiration_ms", pa.int64()),
            ("timestamp", pa.timestamp("s", "UTC")),
            ("delivery_count", pa.uint32()),
        ]
    )
    return pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)


def tags_of(batch: pyarrow.RecordBatch) -> tuple[int, int]:
    """The first and the last delivery tag of a batch with messages."""
    tags = batch.column("delivery_tag")
    return tags[0].as_py(), tags[-1].as_py()

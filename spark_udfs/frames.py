"""Messages that were received, as a Spark frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def to_frame(spark: SparkSession, batch: Any) -> DataFrame:
    """What ``get_batch``, ``browse`` or a stream's ``read`` returned, in Spark's types.

    Spark has no unsigned integers, no dictionaries and no times in seconds: tags, offsets and
    sequences become bigint, ``priority`` and ``delivery_mode`` smallint, ``delivery_count`` bigint,
    exchanges and routing keys string, times timestamp (UTC).  The frame can be written with
    ``format("pyqstore")`` again.

    Args:
        spark: the session that the frame belongs to.
        batch: n rows: a pyarrow RecordBatch, Table or RecordBatchReader, or what speaks Arrow's
            PyCapsule protocol.

    Raises:
        TypeError: batch is none of these.
        OverflowError: a number of 2**63 or more.
    """
    import pyarrow as pa

    if hasattr(batch, "__arrow_c_stream__"):
        table = pa.RecordBatchReader.from_stream(batch).read_all()
    elif hasattr(batch, "__arrow_c_array__"):
        table = pa.Table.from_batches([pa.record_batch(batch)])
    else:
        raise TypeError(f"{type(batch).__name__} has neither __arrow_c_stream__ nor _array__")
    fields = [field.with_type(_spark_type(field.type)) for field in table.schema]
    try:
        table = table.cast(pa.schema(fields))
    except pa.ArrowInvalid as error:
        raise OverflowError(str(error)) from error
    return spark.createDataFrame(table)


def _spark_type(type_: pa.DataType) -> pa.DataType:
    """The nearest type that Spark has; others as they are."""
    import pyarrow as pa

    if pa.types.is_dictionary(type_):
        return _spark_type(type_.value_type)
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", type_.tz or "UTC")
    if pa.types.is_unsigned_integer(type_):
        return {8: pa.int16(), 16: pa.int32()}.get(type_.bit_width, pa.int64())
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.binary()
    return type_

"""Publishing Arrow data: from each library, with each column; a refused batch publishes nothing."""

import contextlib
import ctypes
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore

from ..support import get


def take(channel: pyqstore.Channel, queue: str) -> list[pyqstore.Message]:
    return list(channel.consume(queue, auto_ack=True, inactivity_timeout=0))


def bodies(channel: pyqstore.Channel, queue: str) -> list[bytes]:
    return [message.body for message in take(channel, queue)]


ROWS = [b"one", b"", b"three" * 2000]


@pytest.mark.parametrize(
    "make",
    [
        lambda: pa.table({"body": ROWS}),
        lambda: pa.record_batch({"body": ROWS}),
        lambda: pa.RecordBatchReader.from_batches(
            pa.schema({"body": pa.binary()}),
            iter([pa.record_batch({"body": ROWS[:1]}), pa.record_batch({"body": ROWS[1:]})]),
        ),
        lambda: pa.table({"body": pa.chunked_array([ROWS[:2], [], ROWS[2:]], pa.binary())}),
        lambda: pa.table({"body": [b"skipped", *ROWS, b"skipped"]}).slice(1, 3),
        lambda: pa.StructArray.from_arrays([pa.array(ROWS)], ["body"]),
        lambda: pytest.importorskip("polars").DataFrame({"body": ROWS}),
        lambda: pytest.importorskip("pandas").DataFrame({"body": ROWS}),
    ],
    ids=["table", "batch", "reader", "chunks", "slice", "struct", "polars", "pandas"],
)
def test_rows_are_published_in_order_from_any_library(
    channel: pyqstore.Channel, queue: str, make: Any
) -> None:
    receipt = channel.publish_batch(make(), routing_key=queue)
    assert receipt.count == 3
    assert bodies(channel, queue) == ROWS


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.binary(3),
        pa.string(),
        pa.large_string(),
        pa.string_view(),
    ],
    ids=str,
)
def test_body_may_be_of_any_binary_or_string_type(
    channel: pyqstore.Channel, queue: str, kind: Any
) -> None:
    rows: list[Any] = [b"abc", b"def"]
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)) and "binary" not in str(
        kind
    ):
        rows = ["abc", "def"]
    channel.publish_batch(pa.table({"body": pa.array(rows, kind)}), routing_key=queue)
    assert bodies(channel, queue) == [b"abc", b"def"]


def test_body_column_may_have_another_name(channel: pyqstore.Channel, queue: str) -> None:
    channel.publish_batch(pa.table({"payload": ["x"]}), routing_key=queue, body="payload")
    assert bodies(channel, queue) == [b"x"]


def test_publish_numbers_and_durability_are_in_the_receipt(
    channel: pyqstore.Channel, queue: str
) -> None:
    frame = pa.table({"body": [b"x"] * 1000})
    outside = channel.publish_batch(frame, routing_key=queue)
    assert (outside.first_publish_number, outside.last_publish_number) == (0, 0)
    assert outside.wait(60) is True
    channel.confirm_select()
    channel.basic_publish("", queue, b"x")
    receipt = channel.publish_batch(frame, routing_key=queue)
    assert receipt == pyqstore.Receipt(2, 1001, 1000)
    assert channel.next_publish_number == 1002
    assert receipt.wait(timeout=60) is True
    assert receipt.done
    assert channel.wait_for_confirms(10)
    assert repr(receipt) == "Receipt(2, 1001, 1000)"


def test_confirms_of_a_batch_cover_every_row(channel: pyqstore.Channel, queue: str) -> None:
    channel.confirm_select()
    heard: list[tuple[int, bool]] = []
    channel.add_confirm_listener(lambda number, multiple: heard.append((number, multiple)), None)
    channel.publish_batch(pa.table({"body": [b"x"] * 500}), routing_key=queue)
    assert channel.wait_for_confirms(10)
    covered = 0
    for number, multiple in heard:
        assert multiple or number == covered + 1
        covered = number
    assert covered == 500


def test_empty_batch_is_a_receipt_for_nothing(channel: pyqstore.Channel, queue: str) -> None:
    channel.confirm_select()
    empty = pa.table({"body": pa.array([], pa.binary())})
    for frame in (empty, pa.RecordBatchReader.from_batches(empty.schema, [])):
        receipt = channel.publish_batch(frame, routing_key=queue)
        assert receipt == pyqstore.Receipt(0, 0, 0)
        assert receipt.done
        assert receipt.wait(0)
    assert channel.next_publish_number == 1


def test_columns_become_properties(channel: pyqstore.Channel, queue: str) -> None:
    frame = pa.table(
        {
            "body": [b"1", b"2"],
            "headers": pa.array(
                [[("a", "x"), ("b", "y")], None], pa.map_(pa.string(), pa.string())
            ),
            "message_id": ["m1", None],
            "correlation_id": ["c1", "c2"],
            "type": pa.array(["t", "t"]).dictionary_encode(),
            "app_id": ["app", None],
            "content_type": ["a/b", None],
            "reply_to": ["r", None],
            "priority": pa.array([9, None], pa.uint8()),
            "delivery_mode": pa.array([1, 2], pa.uint8()),
            "expiration_ms": pa.array([60_000, None], pa.int32()),
            "timestamp": pa.array(
                [datetime(2024, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")
            ),
        }
    )
    channel.publish_batch(frame, routing_key=queue)
    first, second = take(channel, queue)
    assert first.properties == pyqstore.Properties(
        headers={"a": "x", "b": "y"},
        message_id="m1",
        correlation_id="c1",
        type="t",
        app_id="app",
        content_type="a/b",
        reply_to="r",
        priority=9,
        delivery_mode=1,
        expiration=60_000,
        timestamp=1_704_067_200,
    )
    assert second.properties == pyqstore.Properties(correlation_id="c2", type="t", delivery_mode=2)


def test_column_beats_keyword_and_null_leaves_it(channel: pyqstore.Channel) -> None:
    channel.exchange_declare("e", "direct")
    for name in ("a", "b", "c"):
        channel.queue_declare(name)
        channel.queue_bind(name, "e", name)
    frame = pa.table(
        {
            "body": [b"1", b"2", b"3"],
            "routing_key": ["a", None, "b"],
            "exchange": ["e", "e", None],
            "type": [None, "column", None],
        }
    )
    properties = pyqstore.Properties(type="keyword", app_id="app", delivery_mode=1)
    channel.publish_batch(frame, "", "c", properties=properties)
    assert bodies(channel, "a") == [b"1"]
    (third,) = take(channel, "b")
    (second,) = take(channel, "c")
    assert (third.body, third.exchange, third.properties.type) == (b"3", "", "keyword")
    assert (second.body, second.exchange, second.properties.type) == (b"2", "e", "column")
    assert second.properties.app_id == "app"


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_routing_keys_lead_each_row_to_its_queue(channel: pyqstore.Channel, kind: Any) -> None:
    channel.exchange_declare("e", "topic")
    for name, pattern in (("all", "#"), ("a", "a.*"), ("b", "b.*")):
        channel.queue_declare(name)
        channel.queue_bind(name, "e", pattern)
    keys = [["a.1", "b.1", "c.1"][number % 3] for number in range(300)]
    rows = [b"%d" % number for number in range(300)]
    frame = pa.table({"body": rows, "routing_key": pa.array(keys, kind)})
    channel.publish_batch(frame, "e")
    assert bodies(channel, "all") == rows
    assert bodies(channel, "a") == rows[0::3]
    assert bodies(channel, "b") == rows[1::3]
    channel.publish_batch(
        pa.table({"body": rows, "routing_key": pa.array(keys).dictionary_encode()}), "e"
    )
    assert bodies(channel, "b") == rows[1::3]


def dictionary(values: list[str | None], entries: list[str | None]) -> Any:
    """Make a dictionary column; an entry that is there twice is named by either."""
    places: list[list[int]] = [
        [at for at, entry in enumerate(entries) if entry == value] for value in values
    ]
    codes = [found[number % len(found)] if found else None for number, found in enumerate(places)]
    return pa.DictionaryArray.from_arrays(
        pa.array(codes, pa.int16()), pa.array(entries, pa.string())
    )


@pytest.mark.parametrize("idle", [0, 3000], ids=["pairs", "rows"])
def test_rows_whose_exchange_and_key_are_dictionaries_go_where_strings_lead(
    channel: pyqstore.Channel, idle: int
) -> None:
    exchanges = ["e", None, "f", ""]
    keys = ["a", "b", None, "q", "k"]
    for exchange in ("e", "f"):
        channel.exchange_declare(exchange, "direct")
    for name, exchange, key in (("q", "e", "a"), ("r", "f", "b"), ("s", "e", "k"), ("k", "f", "k")):
        channel.queue_declare(name)
        channel.queue_bind(name, exchange, key)
    count = 4000
    rows = [b"%d" % number for number in range(count)]
    by_exchange = [exchanges[number % 4] for number in range(count)]
    by_key = [keys[number * 7 // 3 % 5] for number in range(count)]
    more = [f"idle {number}" for number in range(idle)]
    columns = [
        (pa.array(by_exchange), pa.array(by_key)),
        (dictionary(by_exchange, ["f", "e", "", "e", *more]), dictionary(by_key, ["q", *keys])),
        (dictionary(by_exchange, [None, "", "f", "e"]), pa.array(by_key)),
        (pa.array(by_exchange), dictionary(by_key, [*more, "k", "q", "b", "a"])),
    ]
    found = []
    for exchange_column, key_column in columns:
        frame = pa.table({"body": rows, "exchange": exchange_column, "routing_key": key_column})
        channel.publish_batch(frame, "f", "k")
        found.append({name: bodies(channel, name) for name in "qrsk"})
    assert all(len(bodies) > 100 for bodies in found[0].values())
    assert found[1:] == found[:1] * 3


def test_rows_without_delivery_mode_are_persistent(channel: pyqstore.Channel, queue: str) -> None:
    channel.publish_batch(pa.table({"body": [b"x"]}), routing_key=queue)
    (message,) = take(channel, queue)
    assert message.properties.delivery_mode in (None, 2)


def test_unroutable_rows_come_back(channel: pyqstore.Channel, queue: str) -> None:
    returned: list[bytes] = []
    channel.add_return_listener(lambda message: returned.append(message.body))
    frame = pa.table({"body": [b"1", b"2", b"3"], "routing_key": [queue, "nowhere", "nobody"]})
    channel.publish_batch(frame, mandatory=True)
    channel.process_events()
    assert returned == [b"2", b"3"]
    assert bodies(channel, queue) == [b"1"]


def test_what_get_batch_returned_was_refused(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    """Its columns that tell of the delivery were unknown."""
    sent = pyqstore.Properties(
        delivery_mode=2, headers={"a": "b"}, priority=3, expiration=60_000, timestamp=5, type="t"
    )
    channel.basic_publish("", queue, b"first", sent)
    channel.basic_publish("", queue, b"second")
    for _ in range(2):
        batch = channel.get_batch(queue)
        assert channel.publish_batch(batch).count == 2
        channel.basic_ack(multiple=True)
    for browsed in store.browse(queue):
        assert channel.publish_batch(browsed).count == 2
    messages = take(channel, queue)
    assert [message.body for message in messages] == [b"first", b"second"] * 2
    assert messages[0].properties == sent
    assert messages[0].routing_key == queue


BAD: list[tuple[str, Any, str]] = [
    ("no body", lambda: pa.table({"type": ["x"]}), '"body"'),
    ("wrong type", lambda: pa.table({"body": [1, 2]}), '"body"'),
    ("null body", lambda: pa.table({"body": [b"1", None]}), "row 1: body is null"),
    (
        "null in a later chunk",
        lambda: pa.table({"body": pa.chunked_array([[b"1", b"2"], [b"3", None]])}),
        "row 3: body is null",
    ),
    ("unknown column", lambda: pa.table({"body": [b"1"], "prioriti": [1]}), "prioriti"),
    (
        "long key",
        lambda: pa.table({"body": [b"1"] * 3, "routing_key": ["q", "q", "k" * 256]}),
        "row 2: routing_key has 256 bytes",
    ),
    (
        "priority out of range",
        lambda: pa.table({"body": [b"1"] * 2, "priority": [1, 256]}),
        "row 1: priority is 256",
    ),
    (
        "delivery mode 3",
        lambda: pa.table({"body": [b"1"], "delivery_mode": [3]}),
        "row 0: delivery_mode is 3",
    ),
    ("headers of integers", lambda: pa.table({"body": [b"1"], "headers": [1]}), '"headers"'),
    ("not a struct", lambda: pa.array([b"1"]), "struct"),
]


def test_row_with_long_properties_in_a_later_chunk_was_called_by_its_place_in_the_chunk(
    path: Path,
) -> None:
    small, large = {"h": "x"}, {"h": "x" * 2000}
    kind = pa.map_(pa.string(), pa.string())
    headers = [pa.array([list(each.items()) for each in (small, small)], kind)]
    headers.append(pa.array([list(each.items()) for each in (small, large)], kind))
    chunks = pa.chunked_array([[b"0", b"1"], [b"2", b"3"]])
    with pyqstore.open(path, body_bytes_max=1000) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        table = pa.table({"body": chunks, "headers": pa.chunked_array(headers)})
        with pytest.raises(ValueError, match=r"row 3: properties of 20[0-9]+ bytes"):
            channel.publish_batch(table, routing_key="q")
        assert store.queue_status("q")["messages_ready"] == 0


@pytest.mark.parametrize(("make", "words"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_bad_batch_publishes_nothing_and_names_the_place(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str, make: Any, words: str
) -> None:
    channel.confirm_select()
    with pytest.raises(ValueError, match=words):
        channel.publish_batch(make(), routing_key=queue)
    assert channel.next_publish_number == 1
    assert not channel.closed
    assert store.queue_status(queue)["messages_ready"] == 0


def test_too_large_body_refuses_the_whole_batch(path: Any) -> None:
    with pyqstore.open(path, body_bytes_max=10) as store:
        with store.channel() as channel:
            channel.queue_declare("q")
            with pytest.raises((ValueError, pyqstore.PreconditionFailed), match="1"):
                channel.publish_batch(pa.table({"body": [b"small", b"x" * 11]}), routing_key="q")
        assert store.queue_status("q")["messages_ready"] == 0


REFUSED = [
    {"expiration_ms": [None, 2**40]},
    {"headers": pa.array([[], [("CC", "x")]], pa.map_(pa.string(), pa.string()))},
    {"body": [b"", b"x" * 101]},
    {"exchange": ["", "nope"]},
]


@pytest.mark.parametrize("columns", REFUSED, ids=lambda columns: next(iter(columns)))
def test_a_channel_whose_batch_was_refused_is_closed(path: Path, columns: dict[str, Any]) -> None:
    """Whether the refusal was found with the store's lock held or beside it."""
    table = pa.table({"body": [b"1", b"2"], "routing_key": ["q", "q"], **columns})
    with pyqstore.open(path, body_bytes_max=100) as store:
        channel = store.channel()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"held")
        held = get(channel, "q")
        with pytest.raises(pyqstore.ChannelError):
            channel.publish_batch(table)
        assert channel.closed
        assert store.queue_status("q")["messages_unacked"] == 0
        for use in (
            lambda: channel.basic_publish("", "q", b"3"),
            lambda: channel.basic_get("q"),
            lambda: channel.basic_ack(held.delivery_tag),
            lambda: channel.publish_batch(table.slice(0, 1)),
        ):
            with pytest.raises(pyqstore.ChannelClosed):
                use()
        assert store.queue_status("q")["messages_ready"] == 1


@pytest.mark.parametrize("columns", REFUSED, ids=lambda columns: next(iter(columns)))
def test_a_transaction_ends_with_the_channel_whose_batch_was_refused(
    path: Path, columns: dict[str, Any]
) -> None:
    table = pa.table({"body": [b"1", b"2"], "routing_key": ["q", "q"], **columns})

    def work(channel: pyqstore.Channel) -> None:
        with channel.transaction() as transaction:
            transaction.publish("", "q", b"3")
            with contextlib.suppress(pyqstore.ChannelError):
                channel.publish_batch(table)

    with pyqstore.open(path, body_bytes_max=100) as store:
        with store.channel() as channel:
            channel.queue_declare("q", durable=True)
        with pytest.raises(pyqstore.ChannelClosed):
            work(store.channel())
        assert store.queue_status("q")["messages_ready"] == 0


def test_missing_exchange_refuses_the_whole_batch(store: pyqstore.Store, queue: str) -> None:
    with store.channel() as channel, pytest.raises(pyqstore.NotFound, match="nope"):
        channel.publish_batch(
            pa.table({"body": [b"1", b"2"], "exchange": ["", "nope"]}), routing_key=queue
        )
    assert store.queue_status(queue)["messages_ready"] == 0


@pytest.mark.parametrize("data", [None, [b"x"], {"body": [b"x"]}, b"x"])
def test_other_data_is_a_type_error(channel: pyqstore.Channel, data: object) -> None:
    with pytest.raises(TypeError, match="Arrow PyCapsule protocol"):
        channel.publish_batch(data)


def test_wrong_arguments_are_refused(channel: pyqstore.Channel, queue: str) -> None:
    frame = pa.table({"body": [b"x"]})
    with pytest.raises(TypeError, match="properties"):
        channel.publish_batch(frame, properties={"type": "x"})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="routing_key"):
        channel.publish_batch(frame, routing_key=7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="body"):
        channel.publish_batch(frame, body=7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="NUL"):
        channel.publish_batch(frame, body="body\0x")


def test_failing_stream_is_reported_in_its_words(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    def batches() -> Iterator[Any]:
        yield pa.record_batch({"body": [b"1"]})
        raise OSError("the cable came off")

    reader = pa.RecordBatchReader.from_batches(pa.schema({"body": pa.binary()}), batches())
    with pytest.raises(OSError, match="the cable came off"):
        channel.publish_batch(reader, routing_key=queue)
    assert store.queue_status(queue)["messages_ready"] == 0


def test_consumed_capsules_are_refused(channel: pyqstore.Channel, queue: str) -> None:
    batch = pa.record_batch({"body": [b"1"]})
    capsules = batch.__arrow_c_array__()
    pa.RecordBatch._import_from_c_capsule(*capsules)

    class Used:
        def __arrow_c_array__(self, requested_schema: object = None) -> Any:
            return capsules

    class Wrong:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return capsules[0]

    with pytest.raises(ValueError, match="released"):
        channel.publish_batch(Used(), routing_key=queue)
    with pytest.raises(ValueError, match="PyCapsule"):
        channel.publish_batch(Wrong(), routing_key=queue)


class ArrowArray(ctypes.Structure):
    _fields_ = [
        ("length", ctypes.c_int64),
        ("null_count", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("n_buffers", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("children", ctypes.POINTER(ctypes.c_void_p)),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    ]


@pytest.mark.parametrize(
    "offsets", [[0, 5, 3, 9], [-1, 3, 6, 9], [0, 3, 6, 2**31 - 1][::-1], [5, 4, 3, 2]], ids=str
)
def test_hand_made_array_with_bad_offsets_is_refused(
    channel: pyqstore.Channel, queue: str, offsets: list[int]
) -> None:
    batch = pa.record_batch({"body": [b"abc", b"def", b"ghi"]})
    schema_capsule, array_capsule = batch.__arrow_c_array__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    array = ArrowArray.from_address(pointer(array_capsule, b"arrow_array"))
    body = ArrowArray.from_address(array.children[0])
    wrong = (ctypes.c_int32 * len(offsets))(*offsets)
    right = body.buffers[1]
    body.buffers[1] = ctypes.addressof(wrong)

    class HandMade:
        def __arrow_c_array__(self, requested_schema: object = None) -> Any:
            return schema_capsule, array_capsule

    with pytest.raises(ValueError, match=r"row [01]: body has impossible offsets"):
        channel.publish_batch(HandMade(), routing_key=queue)
    body.buffers[1] = right
    assert channel.publish_batch(HandMade(), routing_key=queue).count == 3


def test_pyarrow_array_with_offsets_past_its_data_is_refused(
    channel: pyqstore.Channel, queue: str
) -> None:
    offsets = struct.pack("<4i", 0, 3, 2**30, 9)  # pyarrow itself looks at the first and the last
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"abcdefghi")]
    bodies = pa.Array.from_buffers(pa.binary(), 3, buffers)
    rows = pa.StructArray.from_arrays([bodies], ["body"])
    for data in (rows, pa.RecordBatch.from_struct_array(rows)):
        with pytest.raises(ValueError, match=r"row 2: body has impossible offsets"):
            channel.publish_batch(data, routing_key=queue)
    assert channel.basic_get(queue) is None


def test_data_is_released_whatever_happens(channel: pyqstore.Channel, queue: str) -> None:
    pool = pa.system_memory_pool()
    before = pool.bytes_allocated()
    for body in (pa.binary(), pa.int64()):
        rows: list[Any] = [1] * 10_000 if body == pa.int64() else [b"x" * 50] * 10_000
        array = pa.array(rows, body, memory_pool=pool)
        frame = pa.table({"body": pa.chunked_array([array, array])})
        with contextlib.suppress(ValueError):
            channel.publish_batch(frame, routing_key=queue)
        del array, frame
    assert pool.bytes_allocated() == before
    channel.queue_purge(queue)

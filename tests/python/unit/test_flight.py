"""A store through Arrow Flight: its verbs and columns, and streams."""

import datetime
import os
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

import pyqstore
import pyqstore.flight
from pyqstore.flight import Client, FlightListener

from ..support import batch_of, declare, get, publish, rest, wait_until


def test_a_batch_has_the_columns_and_types_of_a_channel(
    remote: Client, channel: pyqstore.Channel, queue: str
) -> None:
    table = pa.table(
        {
            "body": [b"1", b"2"],
            "headers": pa.array([[("k", "v")], None], pa.map_(pa.string(), pa.string())),
            "message_id": ["m1", None],
            "priority": pa.array([3, None], pa.uint8()),
            "timestamp": pa.array([1_700_000_000, None], pa.timestamp("s", "UTC")),
        }
    )
    receipt = remote.publish_batch(table, "", queue)
    assert (receipt.count, receipt.confirmed, receipt.done) == (2, 2, True)
    far = remote.get_batch(queue)
    remote.close()
    wait_until(lambda: channel.queue_declare(queue, passive=True).message_count == 2)
    near = channel.get_batch(queue)
    assert far.schema == near.schema
    apart = {"redelivered", "delivery_count"}
    for name in set(near.schema.names) - apart:
        assert far[name].to_pylist() == near[name].to_pylist(), name
    assert far["body"].to_pylist() == [b"1", b"2"]


def test_an_empty_queue_gives_no_rows_with_the_columns(remote: Client, queue: str) -> None:
    batch = remote.get_batch(queue, timeout=0.01)
    assert batch.num_rows == 0
    assert {"delivery_tag", "body"} <= set(batch.schema.names)


def test_get_batch_waits_for_a_message(
    remote: Client, flight_server: FlightListener, queue: str
) -> None:
    with pyqstore.connect(flight_server.address) as other:
        timer = threading.Timer(0.2, lambda: other.publish_batch(batch_of(b"late"), "", queue))
        timer.start()
        assert remote.get_batch(queue, timeout=30)["body"].to_pylist() == [b"late"]
        timer.join()


def test_a_client_that_got_nothing_has_nothing_to_settle(remote: Client) -> None:
    with pytest.raises(pyqstore.ChannelClosed, match="nothing to settle"):
        remote.ack(1)


def test_acks_and_nacks(remote: Client, channel: pyqstore.Channel, queue: str) -> None:
    remote.publish_batch(batch_of(b"1", b"2", b"3", b"4"), "", queue)
    tags = remote.get_batch(queue)["delivery_tag"].to_pylist()
    remote.ack(tags[1], multiple=True)
    remote.nack(tags[2])
    remote.nack(tags[3], requeue=False)
    assert rest(channel, queue) == [(b"3", True)]


def test_publishing_counts_what_was_refused_returned_and_unroutable(
    remote: Client, channel: pyqstore.Channel
) -> None:
    declare(channel, "full", max_length=2, overflow="reject-publish")
    receipt = remote.publish_batch(batch_of(b"1", b"2", b"3"), "", "full")
    assert (receipt.refused, receipt.confirmed) == (1, 2)
    with pytest.raises(pyqstore.PublishRefused, match="row"):
        receipt.wait()
    assert remote.publish_batch(batch_of(b"1"), "", "nowhere").unroutable == 1
    assert remote.publish_batch(batch_of(b"1"), "", "nowhere", mandatory=True).returned == 1


def test_a_batch_of_120_mib_of_rows_arrives_in_order(
    remote: Client, channel: pyqstore.Channel, queue: str
) -> None:
    rows = 120
    table = pa.table({"body": [number.to_bytes(1) * (1 << 20) for number in range(rows)]})
    assert remote.publish_batch(table, "", queue).count == rows
    seen = []
    while (batch := remote.get_batch(queue)).num_rows:
        seen += [body[0] for body in batch["body"].to_pylist()]
        assert batch.nbytes < 80 << 20
        remote.ack(batch["delivery_tag"][-1].as_py(), multiple=True)
    assert seen == list(range(rows))


def test_a_body_of_120_mib_arrives(remote: Client, queue: str) -> None:
    body = os.urandom(1 << 20) * 120
    remote.publish_batch(batch_of(body), "", queue)
    assert remote.get_batch(queue)["body"][0].as_py() == body


def test_a_wrong_row_is_named_and_nothing_of_its_message_is_published(
    remote: Client, channel: pyqstore.Channel, queue: str
) -> None:
    wrong = pa.table({"body": pa.array([b"1", None], pa.binary())})
    with pytest.raises(ValueError, match="row 1"):
        remote.publish_batch(wrong, "", queue)
    with pytest.raises(ValueError, match="no column is called"):
        remote.publish_batch(pa.table({"bdy": [b"1"]}), "", queue)
    with pytest.raises(TypeError, match="PyCapsule"):
        remote.publish_batch([b"1"], "", queue)
    assert rest(channel, queue) == []


def test_what_the_callers_data_raises_comes_out_and_what_was_confirmed_stays(
    remote: Client, channel: pyqstore.Channel, queue: str
) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield batch_of(b"1")
        yield batch_of(b"2")
        raise KeyError("mine")

    reader = pa.RecordBatchReader.from_batches(batch_of(b"").schema, batches())
    with pytest.raises(KeyError, match="mine") as caught:
        remote.publish_batch(reader, "", queue, window=1)
    assert caught.value.__notes__ == ["publish_batch: 2 rows had been confirmed"]
    assert rest(channel, queue) == [(b"1", False), (b"2", False)]


def test_dictionaries_that_change_between_batches_arrive(
    remote: Client, channel: pyqstore.Channel
) -> None:
    for name in ("a", "b"):
        declare(channel, name)
    keys = [pa.array([name] * 2).dictionary_encode() for name in ("a", "b")]
    batches = [pa.record_batch([batch_of(b"1", b"2")["body"], key], ["body", "routing_key"])
               for key in keys]  # fmt: skip
    remote.publish_batch(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    assert [remote.queue_status(name).messages_ready for name in ("a", "b")] == [2, 2]
    found = list(remote.browse("a"))
    assert found[0]["routing_key"].to_pylist() == ["a", "a"]


def test_browsing_delivers_nothing(remote: Client, queue: str) -> None:
    remote.publish_batch(batch_of(b"1", b"2", b"3"), "", queue)
    assert [b["body"].to_pylist() for b in remote.browse(queue, 1, 1)] == [[b"2"]]
    assert list(remote.browse(queue, 100)) == []
    assert remote.queue_status(queue).messages_ready == 3
    with pytest.raises(pyqstore.NotFound):
        remote.browse("nowhere")


def test_publishing_through_flight_uses_what_channels_use(
    remote: Client, channel: pyqstore.Channel
) -> None:
    channel.exchange_declare("e", "topic")
    declare(channel, "q")
    remote.queue_bind("q", "e", "a.*")
    properties = pyqstore.Properties(app_id="app", headers={"n": 1})
    remote.publish_batch(batch_of(b"1"), "e", "a.b", properties=properties)
    message = get(channel, "q")
    assert (message.exchange, message.routing_key) == ("e", "a.b")
    assert (message.properties.app_id, message.properties.headers) == ("app", {"n": 1})
    publish(channel, "q", b"2")
    assert remote.queue_purge("q") == 1
    assert remote.queue_delete("q") == 0
    remote.exchange_delete("e")
    with pytest.raises(pyqstore.NotFound):
        remote.queue_declare("q", passive=True)


# Streams.


def test_a_stream_is_published_to_and_read(remote: Client, store: pyqstore.Store) -> None:
    stream = remote.stream("s", max_age="7D")
    assert stream.publish_batch(batch_of(b"1", b"2")).count == 2
    keyed = pa.table({"body": [b"3", b"4"], "routing_key": ["eu.rome", "us.nyc"]})
    stream.publish_batch(keyed)
    near = store.stream("s")
    assert (stream.first, stream.next) == (0, 4)
    assert stream.read().read_all() == near.read().read_all()
    assert stream.read(1, 3, ["body"]).read_all().to_pydict() == {"body": [b"2", b"3"]}
    found = stream.read(columns=["body"], routing_keys=["eu.*"]).read_all()
    assert found.to_pydict() == {"body": [b"3"]}
    assert stream.read("next").read_all().num_rows == 0
    past = datetime.timedelta(hours=1)
    assert stream.read(past).read_all().num_rows == 4
    assert stream.offset_at(datetime.datetime.now(datetime.UTC) + past) == 4
    assert stream.offset_of("next") == 4
    assert stream.read(pyqstore.Committed("group", 3)).read_all().num_rows == 1
    with pytest.raises(ValueError, match="no column"):
        stream.read(columns=["nothing"])
    with pytest.raises(pyqstore.PreconditionFailed):
        remote.stream("s", max_age="8D")


def test_following_a_stream_gets_what_is_published_later(
    remote: Client, store: pyqstore.Store
) -> None:
    near = store.stream("s")
    reader = remote.stream("s").read("next", columns=["body"], follow=True)
    timer = threading.Timer(2.5, lambda: near.publish(b"late"))
    timer.start()
    assert reader.read_next_batch().to_pydict() == {"body": [b"late"]}
    timer.join()
    reader.close()


def test_following_a_stream_ends_with_the_server(store: pyqstore.Store) -> None:
    store.stream("s").publish(b"1")
    with pyqstore.flight.serve(store) as server, pyqstore.connect(server.address) as client:
        reader = client.stream("s").read(follow=True)
        reader.read_next_batch()
        assert server.close(20)
        with pytest.raises(pyqstore.ConnectionLost, match="ends"):
            reader.read_next_batch()

"""A store through Arrow Flight: verbs, columns, errors, two phases, connections, users, TLS.

The server is of this process, but where a client or a server dies.
"""

import datetime
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import pyqstore
import pyqstore.flight
from pyqstore.flight import Client, FlightListener, service, verbs

from ..platter import Platter
from ..support import declare, publish, rest, wait_until


@pytest.fixture
def server(store: pyqstore.Store) -> Iterator[FlightListener]:
    with pyqstore.flight.serve(store) as server:
        yield server


@pytest.fixture
def client(server: FlightListener) -> Iterator[Client]:
    with pyqstore.connect(server.address) as client:
        yield client


def bodies(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch({"body": list(values)})


def raw(server: FlightListener) -> flight.FlightClient:
    return flight.FlightClient(f"grpc://{server.address}")


# Publishing and receiving.


def test_a_batch_has_the_columns_and_types_of_a_channel(
    client: Client, channel: pyqstore.Channel, queue: str
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
    receipt = client.publish_batch(table, "", queue)
    assert (receipt.count, receipt.confirmed, receipt.done) == (2, 2, True)
    far = client.get_batch(queue)
    client.close()
    wait_until(lambda: channel.queue_declare(queue, passive=True).message_count == 2)
    near = channel.get_batch(queue)
    assert far.schema == near.schema
    apart = {"redelivered", "delivery_count"}
    for name in set(near.schema.names) - apart:
        assert far[name].to_pylist() == near[name].to_pylist(), name
    assert far["body"].to_pylist() == [b"1", b"2"]


def test_an_empty_queue_gives_no_rows_with_the_columns(client: Client, queue: str) -> None:
    batch = client.get_batch(queue, timeout=0.01)
    assert batch.num_rows == 0
    assert {"delivery_tag", "body"} <= set(batch.schema.names)


def test_get_batch_waits_for_a_message(client: Client, server: FlightListener, queue: str) -> None:
    with pyqstore.connect(server.address) as other:
        timer = threading.Timer(0.2, lambda: other.publish_batch(bodies(b"late"), "", queue))
        timer.start()
        assert client.get_batch(queue, timeout=30)["body"].to_pylist() == [b"late"]
        timer.join()


def test_a_client_that_got_nothing_has_nothing_to_settle(client: Client) -> None:
    with pytest.raises(pyqstore.ChannelClosed, match="nothing to settle"):
        client.ack(1)


def test_acks_and_nacks(client: Client, channel: pyqstore.Channel, queue: str) -> None:
    client.publish_batch(bodies(b"1", b"2", b"3", b"4"), "", queue)
    tags = client.get_batch(queue)["delivery_tag"].to_pylist()
    client.ack(tags[1], multiple=True)
    client.nack(tags[2])
    client.nack(tags[3], requeue=False)
    assert rest(channel, queue) == [(b"3", True)]


def test_publishing_counts_what_was_refused_returned_and_unroutable(
    client: Client, channel: pyqstore.Channel
) -> None:
    declare(channel, "full", max_length=2, overflow="reject-publish")
    receipt = client.publish_batch(bodies(b"1", b"2", b"3"), "", "full")
    assert (receipt.refused, receipt.confirmed) == (1, 2)
    with pytest.raises(pyqstore.PublishRefused, match="row"):
        receipt.wait()
    assert client.publish_batch(bodies(b"1"), "", "nowhere").unroutable == 1
    assert client.publish_batch(bodies(b"1"), "", "nowhere", mandatory=True).returned == 1


def test_a_batch_of_120_mib_of_rows_arrives_in_order(
    client: Client, channel: pyqstore.Channel, queue: str
) -> None:
    rows = 120
    table = pa.table({"body": [number.to_bytes(1) * (1 << 20) for number in range(rows)]})
    assert client.publish_batch(table, "", queue).count == rows
    seen = []
    while (batch := client.get_batch(queue)).num_rows:
        seen += [body[0] for body in batch["body"].to_pylist()]
        assert batch.nbytes < 80 << 20
        client.ack(batch["delivery_tag"][-1].as_py(), multiple=True)
    assert seen == list(range(rows))


def test_a_body_of_120_mib_arrives(client: Client, queue: str) -> None:
    body = os.urandom(1 << 20) * 120
    client.publish_batch(bodies(body), "", queue)
    assert client.get_batch(queue)["body"][0].as_py() == body


def test_a_wrong_row_is_named_and_nothing_of_its_message_is_published(
    client: Client, channel: pyqstore.Channel, queue: str
) -> None:
    wrong = pa.table({"body": pa.array([b"1", None], pa.binary())})
    with pytest.raises(ValueError, match="row 1"):
        client.publish_batch(wrong, "", queue)
    with pytest.raises(ValueError, match="no column is called"):
        client.publish_batch(pa.table({"bdy": [b"1"]}), "", queue)
    with pytest.raises(TypeError, match="PyCapsule"):
        client.publish_batch([b"1"], "", queue)
    assert rest(channel, queue) == []


def test_what_the_callers_data_raises_comes_out_and_what_was_confirmed_stays(
    client: Client, channel: pyqstore.Channel, queue: str
) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield bodies(b"1")
        yield bodies(b"2")
        raise KeyError("mine")

    reader = pa.RecordBatchReader.from_batches(bodies(b"").schema, batches())
    with pytest.raises(KeyError, match="mine") as caught:
        client.publish_batch(reader, "", queue, window=1)
    assert caught.value.__notes__ == ["publish_batch: 2 rows had been confirmed"]
    assert rest(channel, queue) == [(b"1", False), (b"2", False)]


def test_dictionaries_that_change_between_batches_arrive(
    client: Client, channel: pyqstore.Channel
) -> None:
    for name in ("a", "b"):
        declare(channel, name)
    keys = [pa.array([name] * 2).dictionary_encode() for name in ("a", "b")]
    batches = [pa.record_batch([bodies(b"1", b"2")["body"], key], ["body", "routing_key"])
               for key in keys]  # fmt: skip
    client.publish_batch(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    assert [client.queue_status(name).messages_ready for name in ("a", "b")] == [2, 2]
    found = list(client.browse("a"))
    assert found[0]["routing_key"].to_pylist() == ["a", "a"]


def test_browsing_delivers_nothing(client: Client, queue: str) -> None:
    client.publish_batch(bodies(b"1", b"2", b"3"), "", queue)
    assert [b["body"].to_pylist() for b in client.browse(queue, 1, 1)] == [[b"2"]]
    assert list(client.browse(queue, 100)) == []
    assert client.queue_status(queue).messages_ready == 3
    with pytest.raises(pyqstore.NotFound):
        client.browse("nowhere")


# Errors arrive as themselves.


def test_errors_of_channels_arrive_as_themselves(client: Client, queue: str) -> None:
    with pytest.raises(pyqstore.NotFound, match="NOT_FOUND") as caught:
        client.queue_declare("nowhere", passive=True)
    assert caught.value.reply_code == 404
    with pytest.raises(pyqstore.PreconditionFailed):
        client.queue_declare(queue, durable=False)
    with pytest.raises(pyqstore.NotFound):
        client.get_batch("nowhere")
    with pytest.raises(pyqstore.NotFound):
        client.publish_batch(bodies(b"1"), "no exchange", "")


def test_a_wrong_tag_ends_the_connection_as_it_ends_a_channel(
    client: Client, channel: pyqstore.Channel, queue: str
) -> None:
    client.publish_batch(bodies(b"1"), "", queue)
    client.get_batch(queue)
    with pytest.raises(pyqstore.PreconditionFailed, match="unknown delivery tag 7"):
        client.ack(7)
    with pytest.raises(pyqstore.ChannelClosed):
        client.get_batch(queue)
    assert rest(channel, queue) == [(b"1", True)]
    client.publish_batch(bodies(b"2"), "", queue)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda client: client.queue_purge("s"), "queue.purge not supported by stream queues"),
        (lambda client: client.get_batch("s"), "basic.get not supported by stream queues"),
        (lambda client: client.exchange_declare("e", "none"), "unknown exchange type 'none'"),
        (lambda client: client._link.call(
            "exchange_declare", connection=client._key, exchange="e", exchange_type="none"
        ), "unknown exchange type 'none'"),
    ],
)  # fmt: skip
def test_a_verb_that_a_stream_has_not_leaves_what_the_client_holds(
    client: Client, queue: str, call: Callable[[Client], object], words: str
) -> None:
    """It closed the connection: what was got went back, and the client was of no use any more."""
    client.stream("s")
    client.queue_declare("mine", exclusive=True)
    client.publish_batch(bodies(b"1"), "", queue)
    tag = client.get_batch(queue)["delivery_tag"][0].as_py()
    with pytest.raises(pyqstore.ChannelError, match=words) as caught:
        call(client)
    assert caught.value.reply_code >= 500
    assert set(client.queues()) == {queue, "mine", "s"}
    client.ack(tag)
    status = client.queue_status(queue)
    assert (status.messages_ready, status.messages_unacked) == (0, 0)
    assert client.get_batch("mine").num_rows == 0


def test_a_client_whose_channel_was_closed_gets_again_what_went_back(
    client: Client, queue: str
) -> None:
    """It raised ChannelClosed for ever; exclusive queues, which the connection has, are there."""
    client.queue_declare("mine", exclusive=True)
    client.publish_batch(bodies(b"1"), "", queue)
    client.get_batch(queue)
    with pytest.raises(pyqstore.PreconditionFailed, match="unknown delivery tag 7"):
        client.ack(7)
    with pytest.raises(pyqstore.ChannelClosed, match="went back; the next call begins anew"):
        client.get_batch(queue)
    batch = client.get_batch(queue)
    assert batch["redelivered"].to_pylist() == [True]
    client.ack(batch["delivery_tag"][0].as_py())
    assert client.queue_status(queue).messages_unacked == 0
    assert client.get_batch("mine").num_rows == 0


@pytest.mark.parametrize("verb", ["get_batch", "queue_purge"])
def test_a_client_whose_connection_was_closed_gets_another(
    client: Client, queue: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a queue becomes a stream between the look at it and the call."""
    client.stream("s")
    client.queue_declare("mine", exclusive=True)
    client.publish_batch(bodies(b"1"), "", queue)
    client.get_batch(queue)
    for module in (service, verbs):
        monkeypatch.setattr(module, "check_no_stream", lambda *_: None)
    with pytest.raises(pyqstore.NotImplementedByBroker):
        getattr(client, verb)("s")
    assert client.queue_status(queue).messages_ready == 1
    with pytest.raises(pyqstore.ChannelClosed, match="exclusive queues are gone; the next call"):
        client.queue_declare(exclusive=True)
    client.queue_declare("mine", exclusive=True)
    client.ack(client.get_batch(queue)["delivery_tag"][0].as_py())
    assert client.queue_status(queue).messages_unacked == 0


def test_errors_of_streams_carry_their_figures(client: Client, store: pyqstore.Store) -> None:
    stream = store.stream("s", max_length_bytes=100_000, segment_bytes=65_536)
    for _ in range(10):
        stream.publish_batch(bodies(*[b"x" * 100] * 500))
        store.checkpoint()
    assert stream.first > 0
    with pytest.raises(pyqstore.OffsetOutOfRange) as caught:
        client.stream("s").read(0)
    assert (caught.value.first, caught.value.next) == (stream.first, stream.next)


def test_calls_that_are_none_of_ours_are_answered(server: FlightListener) -> None:
    caller = raw(server)
    for call in (
        lambda: list(caller.do_action(flight.Action("nothing", b"{}"))),
        lambda: list(caller.do_action(flight.Action("settle", b'{"wrong": 1}'))),
        lambda: list(caller.do_action(flight.Action("settle", b"no JSON"))),
        lambda: caller.do_get(flight.Ticket(b"nothing")),
        lambda: caller.do_get(flight.Ticket(b'{"do": "nothing"}')),
    ):
        with pytest.raises(flight.FlightServerError):
            call()
    assert {action.type for action in caller.list_actions()} >= {"settle", "commit_staged"}
    caller.close()


def test_any_client_of_flight_publishes_and_reads(
    server: FlightListener, store: pyqstore.Store, queue: str
) -> None:
    caller = raw(server)
    command = json.dumps({"do": "publish", "routing_key": queue, "window": 2}).encode()
    batch = bodies(b"1", b"2")
    writer, answers = caller.do_put(flight.FlightDescriptor.for_command(command), batch.schema)
    for _ in range(3):
        writer.write_batch(batch)
    told = [json.loads(answers.read().to_pybytes()) for _ in range(2)]
    writer.write_metadata(b"end")
    told += [json.loads(answers.read().to_pybytes()) for _ in range(2)]
    writer.close()
    assert [one.get("rows") for one in told] == [2, 2, 2, None]
    assert told[-1] == {"end": True}
    ticket = json.dumps({"do": "browse", "queue": queue}).encode()
    assert caller.do_get(flight.Ticket(ticket)).read_all().num_rows == 6
    store.stream("s").publish(b"1")
    ticket = json.dumps({"do": "read", "stream": "s", "start": "first"}).encode()
    assert caller.do_get(flight.Ticket(ticket)).read_all()["body"].to_pylist() == [b"1"]
    status = flight.Action("queue_status", json.dumps({"name": queue}).encode())
    (answer,) = caller.do_action(status)
    assert json.loads(answer.body.to_pybytes())["messages_ready"] == 6
    caller.close()


def test_a_client_of_another_version_is_told(server: FlightListener) -> None:
    caller = raw(server)
    with pytest.raises(flight.FlightServerError) as caught:
        list(caller.do_action(flight.Action("hello", b'{"protocol": 99}')))
    assert b"different versions: 99" in caught.value.extra_info
    caller.close()


def test_nobody_there_is_told_with_the_address() -> None:
    with pytest.raises(pyqstore.ConnectionLost, match=r"grpc://127\.0\.0\.1:1 answered"):
        pyqstore.connect("grpc://127.0.0.1:1", timeout=0.2)
    with pytest.raises(ValueError, match="expected grpc://HOST:PORT"):
        pyqstore.connect("http://127.0.0.1:1")


# Connections.


CHILD = """
import sys, time, pyarrow as pa, pyqstore
client = pyqstore.connect(sys.argv[1])
if sys.argv[2] == "hold":
    client.queue_declare("mine", exclusive=True)
    print(client.get_batch("q").num_rows, flush=True)
    time.sleep(60)
def batches():
    for number in range(10**6):
        yield pa.record_batch({"body": [b"x" * 100000]})
        if number == 5:
            print("sent", flush=True)
            time.sleep(60)
schema = pa.schema({"body": pa.binary()})
client.stage(pa.RecordBatchReader.from_batches(schema, batches()), "t", 0, 1)
"""


def child(server: FlightListener, what: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, server.address, what], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() in ("2", "sent")
    return process


def test_a_killed_clients_deliveries_and_exclusive_queues_go_back(
    server: FlightListener, client: Client, channel: pyqstore.Channel, queue: str
) -> None:
    client.publish_batch(bodies(b"1", b"2"), "", queue)
    process = child(server, "hold")
    assert client.queue_status(queue).messages_unacked == 2
    with pytest.raises(pyqstore.ResourceLocked):
        client.queue_declare("mine", passive=True)
    process.kill()
    process.communicate()
    wait_until(lambda: client.queue_status(queue).messages_unacked == 0)
    wait_until(lambda: client.queues() == [queue])
    assert rest(channel, queue) == [(b"1", True), (b"2", True)]


def test_a_client_that_dies_while_it_stages_leaves_nothing(
    server: FlightListener, client: Client, path: Path
) -> None:
    process = child(server, "stage")
    folder = path / "staging"
    wait_until(lambda: len(list(folder.rglob("*.tmp"))) == 1)
    process.kill()
    process.communicate()
    wait_until(lambda: list(folder.rglob("*.*")) == [])


def test_a_connection_ends_with_its_client_and_with_its_server(
    store: pyqstore.Store, queue: str
) -> None:
    with pyqstore.flight.serve(store) as server:
        client = pyqstore.connect(server.address)
        client.publish_batch(bodies(b"1"), "", queue)
        client.get_batch(queue)
        started = time.monotonic()
        assert server.close(200)
        assert time.monotonic() - started < 100
    assert store.queue_status(queue).messages_ready == 1
    with pytest.raises(pyqstore.ConnectionLost):
        client.get_batch(queue)
    client.close()
    client.close()
    assert client.closed
    with pytest.raises(pyqstore.ChannelClosed):
        client.queues()


def test_there_are_no_more_connections_than_may_be(store: pyqstore.Store, queue: str) -> None:
    from pyqstore.serve.listeners import Entrance
    from pyqstore.serve.users import Users

    with (
        FlightListener(store, "127.0.0.1:0", Entrance(Users()), holders_max=1) as server,
        pyqstore.connect(server.address) as first,
        pyqstore.connect(server.address) as second,
    ):
        first.get_batch(queue)
        with pytest.raises(pyqstore.ChannelClosed, match="limit"):
            second.get_batch(queue)


def test_a_batch_that_is_too_large_is_refused(store: pyqstore.Store, queue: str) -> None:
    from pyqstore.serve.listeners import Entrance
    from pyqstore.serve.users import Users

    with (
        FlightListener(store, "127.0.0.1:0", Entrance(Users()), batch_bytes_max=1000) as server,
        pyqstore.connect(server.address) as client,
    ):
        with pytest.raises(pyqstore.PreconditionFailed, match="larger than the server takes: 1000"):
            client.publish_batch(bodies(b"x" * 2000), "", queue)
        client.publish_batch(bodies(b"x" * 500), "", queue)
    assert store.queue_status(queue).messages_ready == 1


def test_two_clients_share_a_queue(server: FlightListener, queue: str) -> None:
    total, seen = 2000, []

    def work() -> None:
        with pyqstore.connect(server.address) as client:
            client.publish_batch(bodies(*(b"%d" % n for n in range(total // 2))), "", queue)
            while (batch := client.get_batch(queue, 100, timeout=0.5)).num_rows:
                client.ack(batch["delivery_tag"][-1].as_py(), multiple=True)
                seen.extend(batch["body"].to_pylist())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == sorted(2 * [b"%d" % n for n in range(total // 2)])


# Two phases.


def test_a_commit_publishes_the_named_attempts_in_the_order_of_partitions(
    client: Client, channel: pyqstore.Channel, path: Path, queue: str
) -> None:
    client.stage(bodies(b"lost"), "t", 0, 1)
    second = client.stage(bodies(b"3", b"4"), "t", 1, "b7")
    first = client.stage(bodies(b"1", b"2"), "t", 0, 2)
    nothing = client.stage(pa.table({"body": pa.array([], pa.binary())}), "t", 2, 0)
    assert client.queue_status(queue).messages_ready == 0
    done = client.commit_staged("t", [second, nothing, first], "", queue)
    assert (done.committed, done.rows, done.unroutable) == (True, 4, 0)
    again = client.commit_staged("t", [second, nothing, first], "", queue)
    assert (again.committed, again.rows) == (False, 0)
    assert client.transaction_known("t")
    assert [body for body, _ in rest(channel, queue)] == [b"1", b"2", b"3", b"4"]
    assert list((path / "staging").rglob("*.arrow")) == []


def test_a_commit_survives_a_restart_of_the_server(path: Path) -> None:
    with (
        pyqstore.open(path) as store,
        pyqstore.flight.serve(store) as server,
        pyqstore.connect(server.address) as client,
    ):
        client.queue_declare("q", durable=True)
        staged = client.stage(bodies(b"1"), "t", 0, 1)
    with (
        pyqstore.open(path) as store,
        pyqstore.flight.serve(store) as server,
        pyqstore.connect(server.address) as client,
    ):
        assert client.commit_staged("t", [staged], "", "q", key="k").rows == 1
        assert (client.transaction_known("k"), client.transaction_known("t")) == (True, False)
        assert client.forget_transaction("k") == 1


def test_a_mandatory_commit_without_a_queue_publishes_nothing(
    client: Client, channel: pyqstore.Channel, queue: str
) -> None:
    table = pa.table({"body": [b"1", b"2"], "routing_key": [queue, "nowhere"]})
    staged = client.stage(table, "t", 0, 1)
    with pytest.raises(pyqstore.MessageReturned) as caught:
        client.commit_staged("t", [staged], mandatory=True)
    assert caught.value.count == 1
    assert rest(channel, queue) == []
    done = client.commit_staged("t", [staged])
    assert (done.committed, done.rows, done.unroutable) == (True, 2, 1)


def test_a_wrong_staged_row_publishes_nothing(
    client: Client, channel: pyqstore.Channel, queue: str
) -> None:
    good = client.stage(bodies(b"1"), "t", 0, 1)
    bad = client.stage(pa.table({"body": pa.array([b"1", None], pa.binary())}), "t", 1, 1)
    with pytest.raises(ValueError, match="row 1"):
        client.commit_staged("t", [good, bad], "", queue)
    with pytest.raises(ValueError, match="two attempts"):
        client.commit_staged("t", [good, good], "", queue)
    assert rest(channel, queue) == []


def test_a_staged_file_that_is_damaged_or_gone_is_named(
    client: Client, path: Path, queue: str
) -> None:
    staged = client.stage(bodies(b"1"), "t", 0, 1)
    (file,) = (path / "staging").rglob("*.arrow")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(pyqstore.StoreCorrupt, match=r"0-1-\w+\.arrow has") as caught:
        client.commit_staged("t", [staged], "", queue)
    assert caught.value.path == f"staging/{file.parent.name}/{file.name}"
    client.abort_staged("t")
    with pytest.raises(pyqstore.StoreCorrupt, match="is missing"):
        client.commit_staged("t", [staged], "", queue)
    assert not client.transaction_known("t")


@pytest.mark.parametrize("attempt", ["", "../../x", "a b", "x" * 65])
def test_an_attempt_that_makes_no_file_name_is_refused(client: Client, attempt: str) -> None:
    with pytest.raises(ValueError, match="A-Z, a-z and 0-9"):
        client.stage(bodies(b"1"), "t", 0, attempt)


def test_a_half_close_without_the_end_stages_nothing(
    server: FlightListener, client: Client, path: Path
) -> None:
    caller = raw(server)
    command = b'{"do": "stage", "transaction": "t", "partition": 0, "attempt": "1"}'
    batch = bodies(b"1")
    writer, answers = caller.do_put(flight.FlightDescriptor.for_command(command), batch.schema)
    writer.write_batch(batch)
    writer.done_writing()
    assert json.loads(answers.read().to_pybytes()) == {"rows": 1}
    assert answers.read() is None  # gRPC calls that a success
    writer.close()
    caller.close()
    assert [entry for entry in (path / "staging").rglob("*") if entry.is_file()] == []


def test_what_nobody_commits_is_swept_when_it_is_old(
    client: Client, server: FlightListener, store: pyqstore.Store, path: Path
) -> None:
    client.stage(bodies(b"1"), "old", 0, 1)
    (folder,) = (path / "staging").iterdir()
    old = time.time() - 8 * 24 * 3600
    os.utime(folder, (old, old))
    client.stage(bodies(b"1"), "new", 0, 1)
    with pyqstore.flight.serve(store):
        assert not folder.exists()
        assert len(list((path / "staging").iterdir())) == 1


def test_a_power_cut_leaves_what_was_staged_and_nothing_of_what_was_not(
    client: Client, channel: pyqstore.Channel, path: Path, queue: str, monkeypatch: Any
) -> None:
    platter = Platter(monkeypatch)
    first = client.stage(bodies(b"1", b"2"), "t", 0, 1)
    second = client.stage(bodies(b"3"), "t", 1, 1)
    root = path / "staging"
    assert platter.names[path.stat().st_ino][root.name] == root.stat().st_ino
    (root / "flight-half.tmp").write_bytes(b"not synced")
    platter.cut(root)
    assert not (root / "flight-half.tmp").exists()
    assert client.commit_staged("t", [first, second], "", queue).rows == 3
    assert [body for body, _ in rest(channel, queue)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("name", ["fsync", "rename"])
@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_a_full_disk_while_rows_are_staged_leaves_nothing_half(
    client: Client, channel: pyqstore.Channel, path: Path, queue: str, name: str, call: int,
    monkeypatch: Any,
) -> None:  # fmt: skip
    wrapped, calls = getattr(os, name), 0

    def full(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise OSError(28, "planted: no space left")
        return wrapped(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, name, full)
        with suppress(pyqstore.StoreFull):
            client.stage(bodies(b"1"), "t", 0, 1)
    staged = client.stage(bodies(b"1"), "t", 0, 2)
    assert list((path / "staging").rglob("*.tmp")) == []
    assert client.commit_staged("t", [staged], "", queue).rows == 1
    assert rest(channel, queue) == [(b"1", False)]


def test_a_store_in_memory_stages_beside_it() -> None:
    with (
        pyqstore.open(":memory:") as store,
        pyqstore.flight.serve(store) as server,
        pyqstore.connect(server.address) as client,
    ):
        client.queue_declare("q")
        staged = client.stage(bodies(b"1"), "t", 0, 1)
        assert client.commit_staged("t", [staged], "", "q").rows == 1


# Streams.


def test_a_stream_is_published_to_and_read(client: Client, store: pyqstore.Store) -> None:
    stream = client.stream("s", max_age="7D")
    assert stream.publish_batch(bodies(b"1", b"2")).count == 2
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
        client.stream("s", max_age="8D")


def test_following_a_stream_gets_what_is_published_later(
    client: Client, store: pyqstore.Store
) -> None:
    near = store.stream("s")
    reader = client.stream("s").read("next", columns=["body"], follow=True)
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


# Users and TLS.


def test_users_come_in_by_password_and_by_token(store: pyqstore.Store) -> None:
    with pyqstore.flight.serve(store, users={"ann": "secret", "bob": "other"}) as server:
        url = f"grpc://{server.address}"
        with pyqstore.connect(url, user="ann", password="secret") as client:
            client.queue_declare("q", durable=True)
            token = client.token()
        with pyqstore.connect(url, token=token) as client:
            client.publish_batch(bodies(b"1"), "", "q")
            assert client.get_batch("q").num_rows == 1
            with pytest.raises(ValueError, match="no token"):
                client.token()
        end = token.split(".")[1]
        for wrong in (
            {},
            {"user": "ann", "password": "other"},
            {"user": "eve", "password": "secret"},
            {"user": "eve", "password": ""},
            {"token": "nonsense"},
            {"token": token[:-1] + ("0" if token[-1] != "0" else "1")},
            {"token": token.replace(end, str(int(end) + 1))},
            {"user": "guest", "password": "guest"},
        ):
            with pytest.raises(pyqstore.AccessRefused, match="ACCESS_REFUSED") as caught:
                pyqstore.connect(url, **wrong)  # type: ignore[arg-type]
            assert "secret" not in str(caught.value)
    with (
        pyqstore.flight.serve(store, users={"ann": "secret"}) as server,
        pytest.raises(pyqstore.AccessRefused),  # a token of a server that ended
    ):
        pyqstore.connect(server.address, token=token)


def test_a_server_without_users_takes_guests_only(server: FlightListener) -> None:
    pyqstore.connect(server.address, user="guest", password="guest").close()
    with pytest.raises(pyqstore.AccessRefused):
        pyqstore.connect(server.address, user="guest", password="wrong")


@pytest.mark.parametrize("users", [None, {"ann": "secret"}])
def test_whoever_has_a_fixed_token_comes_in(
    store: pyqstore.Store, tmp_path: Path, users: dict[str, str] | None
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("first-token\n\nsecond-token\n")
    second = tmp_path / "second"
    second.write_text("second-token\n")
    with pyqstore.flight.serve(store, "0.0.0.0:0", users=users, token_file=tokens) as server:
        url = f"grpc://127.0.0.1:{server.address.rpartition(':')[2]}"
        for given in ({"token": "first-token"}, {"token_file": tokens}, {"token_file": second}):
            pyqstore.connect(url, **given).close()  # type: ignore[arg-type]
        if users:
            with pyqstore.connect(url, user="ann", password="secret") as client:
                pyqstore.connect(url, token=client.token()).close()
        for wrong in (
            {},
            {"token": "first"},
            {"token": ""},
            {"user": "guest", "password": "guest"},
        ):
            with pytest.raises(pyqstore.AccessRefused, match="ACCESS_REFUSED"):
                pyqstore.connect(url, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\n \n", "has no token"),
        (b"a token\n", "line 1 is no token"),
        (b"good\nb\x01d", "line 2 is no token"),
        ("t\u00f6ken".encode(), "no ASCII"),
    ],
)
def test_a_file_without_tokens_lets_nobody_in(
    store: pyqstore.Store, tmp_path: Path, content: bytes, words: str
) -> None:
    file = tmp_path / "tokens"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=words):
        pyqstore.flight.serve(store, token_file=file)
    with pytest.raises(ValueError, match=words):
        pyqstore.connect("grpc://127.0.0.1:1", token_file=file)
    with pytest.raises(ValueError, match="give either"):
        pyqstore.connect("grpc://127.0.0.1:1", token="t", token_file=file)


def test_other_clients_of_flight_get_a_token_as_they_expect(store: pyqstore.Store) -> None:
    with pyqstore.flight.serve(store, users={"ann": "secret"}) as server:
        caller = raw(server)
        header = caller.authenticate_basic_token("ann", "secret")
        options = flight.FlightCallOptions(headers=[header])
        assert len(list(caller.list_actions(options))) > 5
        with pytest.raises(flight.FlightUnauthenticatedError):
            caller.list_actions()
        caller.close()


def test_an_address_of_other_machines_needs_users(store: pyqstore.Store) -> None:
    for address in ("0.0.0.0:0", "[::]:0"):
        with pytest.raises(ValueError, match="reached from other machines"):
            pyqstore.flight.serve(store, address)
    with pyqstore.flight.serve(store, "0.0.0.0:0", users={"ann": "secret"}) as server:
        port = server.address.rpartition(":")[2]
        pyqstore.connect(f"grpc://127.0.0.1:{port}", user="ann", password="secret").close()


def test_tls_takes_clients_that_know_the_authority(
    store: pyqstore.Store, certificates: Path
) -> None:
    files: dict[str, Any] = {
        "tls_cert": certificates / "server.pem",
        "tls_key": certificates / "server.key",
    }
    with pyqstore.flight.serve(store, **files, users={"ann": "secret"}) as server:
        url = f"grpc+tls://{server.address}"
        who = {"user": "ann", "password": "secret"}
        with pyqstore.connect(url, tls_ca=certificates / "ca.pem", **who) as client:  # type: ignore[arg-type]
            client.queue_declare("q", durable=True)
            client.publish_batch(bodies(b"1"), "", "q")
        with pytest.raises(pyqstore.ConnectionLost):
            pyqstore.connect(url, **who, timeout=2)  # type: ignore[arg-type]
        with pytest.raises(pyqstore.ConnectionLost):
            pyqstore.connect(server.address, **who, timeout=2)  # type: ignore[arg-type]


def test_mutual_tls_takes_clients_with_a_certificate(
    store: pyqstore.Store, certificates: Path
) -> None:
    files: dict[str, Any] = {
        "tls_cert": certificates / "server.pem",
        "tls_key": certificates / "server.key",
        "tls_ca": certificates / "ca.pem",
    }
    with pyqstore.flight.serve(store, **files) as server:
        url = f"grpc+tls://{server.address}"
        own: dict[str, Any] = {
            "tls_cert": certificates / "client.pem",
            "tls_key": certificates / "client.key",
        }
        with pyqstore.connect(url, tls_ca=certificates / "ca.pem", **own) as client:
            assert client.queues() == []
        with pytest.raises(pyqstore.ConnectionLost):
            pyqstore.connect(url, tls_ca=certificates / "ca.pem", timeout=2)


def test_options_that_do_not_go_together_are_refused(
    store: pyqstore.Store, certificates: Path, tmp_path: Path
) -> None:
    for wrong in (
        {"user": "ann"},
        {"user": "ann", "password": "x", "token": "y"},
        {"tls_cert": certificates / "client.pem"},
        {"tls_ca": certificates / "ca.pem"},
    ):
        with pytest.raises(ValueError):
            pyqstore.connect("grpc://127.0.0.1:1", **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="both a certificate and its key"):
        pyqstore.flight.serve(store, tls_cert=certificates / "server.pem")
    with pytest.raises(ValueError, match="1 to 107 bytes"):
        pyqstore.flight.serve(store, f"unix:{tmp_path}/{'x' * 108}")


def test_a_server_that_is_paused_goes_on(
    server: FlightListener, client: Client, queue: str
) -> None:
    """A client that is stopped and goes on has lost nothing."""
    client.publish_batch(bodies(b"1", b"2"), "", queue)
    process = child(server, "hold")
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    assert client.queue_status(queue).messages_unacked == 2
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.communicate()


def test_publishing_through_flight_uses_what_channels_use(
    client: Client, channel: pyqstore.Channel
) -> None:
    channel.exchange_declare("e", "topic")
    declare(channel, "q")
    client.queue_bind("q", "e", "a.*")
    properties = pyqstore.Properties(app_id="app", headers={"n": 1})
    client.publish_batch(bodies(b"1"), "e", "a.b", properties=properties)
    message = channel.basic_get("q")
    assert message is not None
    assert (message.exchange, message.routing_key) == ("e", "a.b")
    assert (message.properties.app_id, message.properties.headers) == ("app", {"n": 1})
    publish(channel, "q", b"2")
    assert client.queue_purge("q") == 1
    assert client.queue_delete("q") == 0
    client.exchange_delete("e")
    with pytest.raises(pyqstore.NotFound):
        client.queue_declare("q", passive=True)

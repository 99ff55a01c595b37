"""Errors of a store arrive through Arrow Flight as themselves, and the client goes on."""

import json
from collections.abc import Callable

import pytest
from pyarrow import flight

import pyqstore
import pyqstore.flight
from pyqstore.flight import Client, FlightListener, service, verbs

from ..support import batch_of, rest


def test_errors_of_channels_arrive_as_themselves(remote: Client, queue: str) -> None:
    with pytest.raises(pyqstore.NotFound, match="NOT_FOUND") as caught:
        remote.queue_declare("nowhere", passive=True)
    assert caught.value.reply_code == 404
    with pytest.raises(pyqstore.PreconditionFailed):
        remote.queue_declare(queue, durable=False)
    with pytest.raises(pyqstore.NotFound):
        remote.get_batch("nowhere")
    with pytest.raises(pyqstore.NotFound):
        remote.publish_batch(batch_of(b"1"), "no exchange", "")


def test_a_wrong_tag_ends_the_connection_as_it_ends_a_channel(
    remote: Client, channel: pyqstore.Channel, queue: str
) -> None:
    remote.publish_batch(batch_of(b"1"), "", queue)
    remote.get_batch(queue)
    with pytest.raises(pyqstore.PreconditionFailed, match="unknown delivery tag 7"):
        remote.ack(7)
    with pytest.raises(pyqstore.ChannelClosed):
        remote.get_batch(queue)
    assert rest(channel, queue) == [(b"1", True)]
    remote.publish_batch(batch_of(b"2"), "", queue)


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
    remote: Client, queue: str, call: Callable[[Client], object], words: str
) -> None:
    """It closed the connection: what was got went back, and the client was of no use any more."""
    remote.stream("s")
    remote.queue_declare("mine", exclusive=True)
    remote.publish_batch(batch_of(b"1"), "", queue)
    tag = remote.get_batch(queue)["delivery_tag"][0].as_py()
    with pytest.raises(pyqstore.ChannelError, match=words) as caught:
        call(remote)
    assert caught.value.reply_code >= 500
    assert set(remote.queues()) == {queue, "mine", "s"}
    remote.ack(tag)
    status = remote.queue_status(queue)
    assert (status.messages_ready, status.messages_unacked) == (0, 0)
    assert remote.get_batch("mine").num_rows == 0


def test_a_client_whose_channel_was_closed_gets_again_what_went_back(
    remote: Client, queue: str
) -> None:
    """It raised ChannelClosed for ever; exclusive queues, which the connection has, are there."""
    remote.queue_declare("mine", exclusive=True)
    remote.publish_batch(batch_of(b"1"), "", queue)
    remote.get_batch(queue)
    with pytest.raises(pyqstore.PreconditionFailed, match="unknown delivery tag 7"):
        remote.ack(7)
    with pytest.raises(pyqstore.ChannelClosed, match="went back; the next call begins anew"):
        remote.get_batch(queue)
    batch = remote.get_batch(queue)
    assert batch["redelivered"].to_pylist() == [True]
    remote.ack(batch["delivery_tag"][0].as_py())
    assert remote.queue_status(queue).messages_unacked == 0
    assert remote.get_batch("mine").num_rows == 0


@pytest.mark.parametrize("verb", ["get_batch", "queue_purge"])
def test_a_client_whose_connection_was_closed_gets_another(
    remote: Client, queue: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a queue becomes a stream between the look at it and the call."""
    remote.stream("s")
    remote.queue_declare("mine", exclusive=True)
    remote.publish_batch(batch_of(b"1"), "", queue)
    remote.get_batch(queue)
    for module in (service, verbs):
        monkeypatch.setattr(module, "check_no_stream", lambda *_: None)
    with pytest.raises(pyqstore.NotImplementedByBroker):
        getattr(remote, verb)("s")
    assert remote.queue_status(queue).messages_ready == 1
    with pytest.raises(pyqstore.ChannelClosed, match="exclusive queues are gone; the next call"):
        remote.queue_declare(exclusive=True)
    remote.queue_declare("mine", exclusive=True)
    remote.ack(remote.get_batch(queue)["delivery_tag"][0].as_py())
    assert remote.queue_status(queue).messages_unacked == 0


def test_errors_of_streams_carry_their_figures(remote: Client, store: pyqstore.Store) -> None:
    stream = store.stream("s", max_length_bytes=100_000, segment_bytes=65_536)
    for _ in range(10):
        stream.publish_batch(batch_of(*[b"x" * 100] * 500))
        store.checkpoint()
    assert stream.first > 0
    with pytest.raises(pyqstore.OffsetOutOfRange) as caught:
        remote.stream("s").read(0)
    assert (caught.value.first, caught.value.next) == (stream.first, stream.next)


def test_calls_that_are_none_of_ours_are_answered(flight_server: FlightListener) -> None:
    caller = flight.FlightClient(f"grpc://{flight_server.address}")
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
    flight_server: FlightListener, store: pyqstore.Store, queue: str
) -> None:
    caller = flight.FlightClient(f"grpc://{flight_server.address}")
    command = json.dumps({"do": "publish", "routing_key": queue, "window": 2}).encode()
    batch = batch_of(b"1", b"2")
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


def test_a_client_of_another_version_is_told(flight_server: FlightListener) -> None:
    caller = flight.FlightClient(f"grpc://{flight_server.address}")
    with pytest.raises(flight.FlightServerError) as caught:
        list(caller.do_action(flight.Action("hello", b'{"protocol": 99}')))
    assert b"different versions: 99" in caught.value.extra_info
    caller.close()


def test_nobody_there_is_told_with_the_address() -> None:
    with pytest.raises(pyqstore.ConnectionLost, match=r"grpc://127\.0\.0\.1:1 answered"):
        pyqstore.connect("grpc://127.0.0.1:1", timeout=0.2)
    with pytest.raises(ValueError, match="expected grpc://HOST:PORT"):
        pyqstore.connect("http://127.0.0.1:1")

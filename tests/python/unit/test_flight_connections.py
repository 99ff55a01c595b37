"""Connections through Arrow Flight: how they end, and their limits.

The server is of this process; some clients are processes that are killed or stopped.
"""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import pyqstore
import pyqstore.flight
from pyqstore.flight import Client, FlightListener

from ..support import batch_of, rest, wait_until

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
    flight_server: FlightListener, remote: Client, channel: pyqstore.Channel, queue: str
) -> None:
    remote.publish_batch(batch_of(b"1", b"2"), "", queue)
    process = child(flight_server, "hold")
    assert remote.queue_status(queue).messages_unacked == 2
    with pytest.raises(pyqstore.ResourceLocked):
        remote.queue_declare("mine", passive=True)
    process.kill()
    process.communicate()
    wait_until(lambda: remote.queue_status(queue).messages_unacked == 0)
    wait_until(lambda: remote.queues() == [queue])
    assert rest(channel, queue) == [(b"1", True), (b"2", True)]


def test_a_client_that_dies_while_it_stages_leaves_nothing(
    flight_server: FlightListener, remote: Client, path: Path
) -> None:
    process = child(flight_server, "stage")
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
        client.publish_batch(batch_of(b"1"), "", queue)
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
            client.publish_batch(batch_of(b"x" * 2000), "", queue)
        client.publish_batch(batch_of(b"x" * 500), "", queue)
    assert store.queue_status(queue).messages_ready == 1


def test_two_clients_share_a_queue(flight_server: FlightListener, queue: str) -> None:
    total, seen = 2000, []

    def work() -> None:
        with pyqstore.connect(flight_server.address) as client:
            client.publish_batch(batch_of(*(b"%d" % n for n in range(total // 2))), "", queue)
            while (batch := client.get_batch(queue, 100, timeout=0.5)).num_rows:
                client.ack(batch["delivery_tag"][-1].as_py(), multiple=True)
                seen.extend(batch["body"].to_pylist())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == sorted(2 * [b"%d" % n for n in range(total // 2)])


def test_a_server_that_is_paused_goes_on(
    flight_server: FlightListener, remote: Client, queue: str
) -> None:
    """A client that is stopped and goes on has lost nothing."""
    remote.publish_batch(batch_of(b"1", b"2"), "", queue)
    process = child(flight_server, "hold")
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    assert remote.queue_status(queue).messages_unacked == 2
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.communicate()

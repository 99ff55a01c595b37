"""``pyqstore serve`` as a process: how it begins, what it says, how it ends."""

import re
import signal
import socket
import ssl
from pathlib import Path

import pika
import pika.exceptions
import pyarrow as pa
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyarrow import flight

import pyqstore

from ..serving import Served, resident, served
from ..support import declare, get, run_command, wait_until

LOOPBACK = ("--flight", "127.0.0.1:0")


def failed(*arguments: object) -> tuple[int, str]:
    """Exit status and the complaint of a server that does not begin."""
    done = run_command("serve", *arguments, timeout=60)
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_ends_in_order_on_a_signal_with_everything_durable(path: Path, number: int) -> None:
    with served(path, *LOOPBACK) as server:
        address = server.addresses()["flight"]
        with pyqstore.connect(address) as client:
            client.queue_declare("q", durable=True)
            client.publish_batch(pa.table({"body": [b"1", b"2"]}), "", "q")
        status, out, err = server.end(number)
        assert (status, err) == (0, "")
        assert out == f"flight: accepting at {address}\n"
        assert not server.ready.exists()
    with pyqstore.open(path, create=False) as store, store.channel() as channel:
        assert [get(channel, "q", auto_ack=True).body for _ in range(2)] == [b"1", b"2"]
        assert store.recovery_report.torn_bytes == 0


def test_serve_accepts_at_a_socket_of_its_owner_alone(path: Path, tmp_path: Path) -> None:
    where = tmp_path / "socket"
    with served(path, "--flight", f"unix:{where}") as server:
        address = server.addresses()["flight"]
        assert address == f"unix:{where}"
        assert where.stat().st_mode & 0o077 == 0
        for url in (address, f"grpc+{address}"):
            with pyqstore.connect(url) as client:
                assert client.queues() == []
        server.process.kill()
        server.process.wait()
    with served(path, "--flight", f"unix:{where}") as server:  # the socket of one that was killed
        assert server.addresses() == {"flight": address}
        status, complaint = failed(tmp_path / "other", "--flight", address)
        assert (status, "accepts there already" in complaint) == (3, True)
        assert server.end()[0] == 0
    assert not where.exists()


def test_serve_gives_back_what_a_client_holds_when_it_ends(path: Path) -> None:
    with (
        served(path, *LOOPBACK) as server,
        pyqstore.connect(server.addresses()["flight"]) as client,
    ):
        client.queue_declare("q", durable=True)
        client.publish_batch(pa.table({"body": [b"1"]}), "", "q")
        assert client.get_batch("q").num_rows == 1
        assert server.end()[0] == 0
        with pytest.raises(pyqstore.ConnectionLost, match=r"127\.0\.0\.1"):
            client.ack(1)
    with pyqstore.open(path) as store, store.channel() as channel:
        assert get(channel, "q").body == b"1"


def test_serve_ends_though_a_client_sends_nothing_more(path: Path) -> None:
    with served(path, *LOOPBACK) as server:
        address = server.addresses()["flight"]
        with pyqstore.connect(address) as client:
            client.queue_declare("q", durable=True)
        stuck = flight.FlightClient(f"grpc://{address}")
        command = b'{"do": "publish", "routing_key": "q", "window": 1}'
        batch = pa.record_batch({"body": [b"1"]})
        writer, answers = stuck.do_put(flight.FlightDescriptor.for_command(command), batch.schema)
        writer.write_batch(batch)
        assert answers.read() is not None
        status, _, err = server.end()
        assert (status, err.count("\n")) == (0, 1)
        assert "did not end in time" in err
        with pytest.raises(flight.FlightError):
            writer.close()
    with pyqstore.open(path) as store, store.channel() as channel:
        assert get(channel, "q").body == b"1"


def test_serve_refuses_what_it_cannot_do(path: Path, tmp_path: Path) -> None:
    assert failed(path)[0] == 2
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        status, complaint = failed(path, "--flight", address)
        assert status == 3
        assert f"cannot accept at {address}: Address already in use" in complaint
    status, complaint = failed(path, "--flight", "0.0.0.0:0")
    assert (status, "reached from other machines" in complaint) == (3, True)
    status, complaint = failed(path, *LOOPBACK, "--user", "ann", "--user", ":secret")
    assert (status, "expected NAME:PASSWORD" in complaint) == (3, True)
    assert "secret" not in complaint
    status, complaint = failed(path, "--flight", "nowhere")
    assert (status, "expected HOST:PORT or unix:PATH" in complaint) == (3, True)
    (tmp_path / "file").write_text("x")
    status, complaint = failed(path, "--flight", f"unix:{tmp_path}/file")
    assert (status, "no socket" in complaint) == (3, True)
    assert (tmp_path / "file").read_text() == "x"


def test_a_server_that_fails_leaves_the_ready_file_of_the_one_that_goes_on(path: Path) -> None:
    with served(path, *LOOPBACK) as server:
        addresses = server.addresses()
        status, complaint = failed(path, *LOOPBACK, "--ready-file", server.ready)
        assert (status, "is open in process" in complaint) == (3, True), complaint
        status, _ = failed(path, "--flight", "junk", "--ready-file", server.ready)
        assert status == 3
        assert server.addresses() == addresses
        server.ready.unlink()
        server.ready.write_text("of another")
        server.end()
        assert server.ready.read_text() == "of another"
    with served(path, *LOOPBACK) as server:
        server.addresses()
        server.process.kill()
        server.process.wait()
        status, _ = failed(path, "--flight", "junk", "--ready-file", server.ready)
        assert server.ready.exists()
        server = Served(path, *LOOPBACK)
        assert server.addresses() != addresses
        server.end()
        assert not server.ready.exists()


def test_no_thread_but_the_main_one_takes_the_signal_that_ends_the_server(path: Path) -> None:
    """Else the process ends at once, when that one is busy."""
    with served(path, *LOOPBACK, "--http", "127.0.0.1:0") as server:
        server.addresses()
        process = server.process.pid
        taking = []
        for thread in Path(f"/proc/{process}/task").iterdir():
            blocked = re.search(r"SigBlk:\s*(\w+)", (thread / "status").read_text())
            assert blocked is not None
            if not int(blocked[1], 16) >> (signal.SIGTERM - 1) & 1:
                taking.append(int(thread.name))
        assert set(taking) <= {process}
        assert server.end()[0] == 0


def test_what_serve_refuses_makes_no_store_and_is_one_line(
    path: Path, tmp_path: Path, certificates: Path
) -> None:
    (tmp_path / "empty").write_text("")
    tls = ("--tls-cert", certificates / "server.pem", "--tls-key", certificates / "server.key")
    for wrong, said in {
        ("--flight", "nowhere"): "expected HOST:PORT",
        ("--flight", "0.0.0.0:0"): "reached from other machines",
        ("--flight", f"unix:{tmp_path}/none/socket"): "there is no directory",
        (*LOOPBACK, "--ready-file", tmp_path / "none" / "ready"): "no ready file can be written",
        (*LOOPBACK, "--tls-cert", tls[3], "--tls-key", tls[1]): "no certificate with its key",
        (*LOOPBACK, *tls[:3], certificates / "client.key"): "no certificate with its key",
        (*LOOPBACK, *tls[:3], tmp_path / "empty"): "no certificate with its key",
        (*LOOPBACK, *tls, "--tls-ca", tmp_path / "empty"): "has no certificate",
        (*LOOPBACK, *tls, "--tls-ca", tls[3]): "has no certificate",
    }.items():
        status, complaint = failed(path, *wrong)
        assert (status, said in complaint, complaint.count("\n")) == (3, True, 1), complaint
        assert not path.exists()


def test_a_killed_server_loses_nothing_confirmed_and_doubles_nothing(path: Path) -> None:
    rows, body = 500, b"x" * 1000
    batch = pa.record_batch({"body": [body] * rows, "message_id": [""] * rows})
    sent: list[int] = []

    def batches() -> object:
        for number in range(1000):
            sent.append(number)
            if number == 40:
                server.process.kill()
            ids = pa.array([f"{number}-{row}" for row in range(rows)])
            yield pa.record_batch([batch["body"], ids], names=["body", "message_id"])

    with served(path, *LOOPBACK) as server:
        with pyqstore.connect(server.addresses()["flight"]) as client:
            client.queue_declare("q", durable=True)
            reader = pa.RecordBatchReader.from_batches(batch.schema, batches())
            with pytest.raises(pyqstore.ConnectionLost) as caught:
                client.publish_batch(reader, "", "q", window=4)
        (note,) = caught.value.__notes__
        confirmed = int(note.split()[1])
    with pyqstore.open(path) as store, store.channel() as channel:
        found = channel.get_batch("q", 10**6)["message_id"].to_pylist()
    expected = [f"{number}-{row}" for number in range(len(found) // rows) for row in range(rows)]
    assert found == expected
    assert rows <= confirmed <= len(found) <= rows * len(sent)


@pytest.mark.clock
def test_serve_keeps_bounded_memory_while_a_reader_reads_nothing(path: Path) -> None:
    with pyqstore.open(path) as store:
        stream = store.stream("s")
        block = pa.record_batch({"body": [b"x" * (1 << 20)] * 16})
        for _ in range(16):  # 256 MiB
            stream.publish_batch(block)
    with (
        served(path, *LOOPBACK) as server,
        pyqstore.connect(server.addresses()["flight"]) as client,
    ):
        before = resident(server.process.pid)
        reader = client.stream("s").read(columns=["offset", "body"])
        first = reader.read_next_batch()
        seen: list[int] = []

        def is_still() -> bool:
            seen.append(resident(server.process.pid))
            return len(seen) > 50 and max(seen[-50:]) - min(seen[-50:]) < 1 << 20

        wait_until(is_still)
        assert max(seen) - before < 100 << 20
        rest = sum(len(batch) for batch in reader)
        assert len(first) + rest == 256
        assert resident(server.process.pid) - before < 100 << 20


def test_serve_ends_when_its_store_has_failed(path: Path) -> None:
    with (
        served(path, *LOOPBACK) as server,
        pyqstore.connect(server.addresses()["flight"]) as client,
    ):
        client.queue_declare("q", durable=True)
        path.rename(path.with_name("moved"))
        with pytest.raises(pyqstore.StoreFailed, match="moved away"):
            client.publish_batch(pa.table({"body": [b"1"]}), "", "q")
        _, err = server.process.communicate(timeout=30)
        assert server.process.returncode == 3
        assert "moved away while it was open" in err


def test_what_a_client_declares_is_there_after_a_kill(path: Path) -> None:
    with served(path, *LOOPBACK) as server:
        with pyqstore.connect(server.addresses()["flight"]) as client:
            client.exchange_declare("e", "topic", durable=True)
            client.queue_declare("q", durable=True, arguments={"x-max-length": 5})
            client.queue_bind("q", "e", "a.#")
        server.process.kill()
        server.process.wait()
    with pyqstore.open(path) as store, store.channel() as channel:
        declare(channel, "q", max_length=5)
        channel.basic_publish("e", "a.b", b"1")
        assert get(channel, "q").body == b"1"


# ---- AMQP ----


def test_serve_lets_clients_of_rabbitmq_in_and_ends_with_everything_durable(path: Path) -> None:
    with served(path, "--listen", "127.0.0.1:0", "--user", "ann:secret", *LOOPBACK) as server:
        addresses = server.addresses()
        assert set(addresses) == {"amqp", "flight"}
        host, _, port = addresses["amqp"].rpartition(":")
        credentials = pika.PlainCredentials("ann", "secret")
        parameters = pika.ConnectionParameters(host, int(port), credentials=credentials)
        connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"1", pika.BasicProperties(delivery_mode=2))
        assert channel.queue_declare("q", passive=True).method.message_count == 1
        assert channel.basic_get("q")[2] == b"1"
        status, out, err = server.end()
        assert (status, err) == (0, "")
        assert f"amqp: accepting at {addresses['amqp']}\n" in out
        with pytest.raises(pika.exceptions.AMQPError):
            channel.basic_get("q")
    with pyqstore.open(path, create=False) as store, store.channel() as own:
        message = get(own, "q", auto_ack=True)
        assert (message.body, message.redelivered) == (b"1", True)


def test_serve_offers_its_clients_what_the_command_line_says(path: Path) -> None:
    options = ("--heartbeat=7", "--connections-max=1", "--channel-max=9", "--frame-max=8192")
    with served(path, "--listen", "127.0.0.1:0", *options) as server:
        port = int(server.addresses()["amqp"].rpartition(":")[2])
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        offered = connection._impl.params
        assert (offered.heartbeat, offered.channel_max, offered.frame_max) == (7, 9, 8192)
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        connection.close()
        assert server.end()[0] == 0


def test_serve_refuses_options_of_amqp_without_amqp(path: Path) -> None:
    given = ("--heartbeat=7", "--connections-max=9", "--channel-max=9", "--frame-max=8192")
    for option in (*((one,) for one in given), ("--quorum-as-classic",), ("--proxy-protocol",)):
        status, complaint = failed(path, *LOOPBACK, *option)
        name, _, _ = option[0].partition("=")
        assert (status, f"{name} needs --listen" in complaint) == (2, True), complaint
    assert failed(path, "--listen", "127.0.0.1:0", "--heartbeat", "-1")[0] == 2
    assert not path.exists()


def publish_large(channel: BlockingChannel) -> None:
    for _ in range(100):
        channel.basic_publish("", "q", bytes(50_000))
        channel.queue_declare("q", passive=True)  # what was refused is told here at the latest


def test_serve_gives_each_store_the_memory_that_the_command_line_says(
    path: Path, tmp_path: Path
) -> None:
    """A transaction may take half of a quarter of it."""
    other = tmp_path / "other.qs"
    options = ("--listen", "127.0.0.1:0", "--vhost", f"other={other}", "--memory-budget", "4MiB")
    with served(path, *options) as server:
        port = int(server.addresses()["amqp"].rpartition(":")[2])
        for vhost in ("/", "other"):
            connection = pika.BlockingConnection(
                pika.ConnectionParameters("127.0.0.1", port, vhost)
            )
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            channel.tx_select()
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=" 1048576 for all"):
                publish_large(channel)
            connection.close()
    status, complaint = failed(tmp_path / "none", "--listen", "127.0.0.1:0", "--memory-budget=much")
    assert (status, "memory_budget" in complaint) == (3, True), complaint
    assert not (tmp_path / "none").exists()


def test_serve_refuses_tokens_that_let_nobody_in(path: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("\n")
    status, complaint = failed(path, *LOOPBACK, "--token-file", str(tokens))
    assert (status, "has no token" in complaint) == (3, True), complaint
    status, complaint = failed(path, "--listen", "127.0.0.1:0", "--token-file", str(tokens))
    assert (status, "--token-file needs --flight" in complaint) == (2, True), complaint
    assert not path.exists()


def test_serve_says_why_it_does_not_listen(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, complaint = failed(tmp_path / "a", "--listen", f"127.0.0.1:{port}")
    assert status == 3
    assert f"127.0.0.1:{port}" in complaint
    assert "take another port" in complaint
    status, complaint = failed(tmp_path / "a", "--listen", "0.0.0.0:0")
    assert (status, "give users" in complaint) == (3, True)


def test_serve_speaks_tls_to_clients_of_rabbitmq(path: Path, certificates: Path) -> None:
    keys = [f"--tls-{what}={certificates / name}" for what, name in
            (("cert", "server.pem"), ("key", "server.key"), ("ca", "ca.pem"))]  # fmt: skip
    with served(path, "--listen", "127.0.0.1:0", "--user", "client:x", *keys) as server:
        ((protocol, address),) = server.addresses().items()
        assert protocol == "amqp"
        host, _, port = address.rpartition(":")
        context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        context.load_cert_chain(certificates / "client.pem", certificates / "client.key")
        connection = pika.BlockingConnection(
            pika.ConnectionParameters(
                host,
                int(port),
                ssl_options=pika.SSLOptions(context, "localhost"),
                credentials=pika.credentials.ExternalCredentials(),
            )
        )
        connection.channel().queue_declare("q", durable=True)
        connection.close()
        status, out, err = server.end()
        assert (status, err) == (0, "")
        assert f"amqp: accepting at {address}\n" in out

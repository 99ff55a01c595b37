"""``pyqstore serve`` with several addresses for AMQP, with and without TLS: pika at each."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pika
import pika.exceptions
import pytest

import pyqstore
from pyqstore.serve.addresses import Endpoint, endpoints

from ..serving import served
from .test_listen_tls import client_context
from .test_serve import failed

START = b"AMQP\0\0\x09\x01"


def pair(certificates: Path) -> tuple[str, ...]:
    return (
        *("--tls-cert", str(certificates / "server.pem")),
        *("--tls-key", str(certificates / "server.key")),
    )


def come_in(address: str, context: ssl.SSLContext | None = None) -> pika.BlockingConnection:
    host, _, port = address.rpartition(":")
    options = None if context is None else pika.SSLOptions(context, "localhost")
    return pika.BlockingConnection(
        pika.ConnectionParameters(host, int(port), ssl_options=options, heartbeat=0)
    )


def test_serve_accepts_at_each_address_with_tls_and_without(
    path: Path, tmp_path: Path, certificates: Path
) -> None:
    place = tmp_path / "socket"
    where = ("amqp://127.0.0.1:0", "amqps://127.0.0.1:0", "127.0.0.1:0", f"unix:{place}")
    listens = [f"--listen={each}" for each in where]
    with served(path, *listens, *pair(certificates)) as server:
        addresses = server.addresses()
        assert list(addresses) == ["amqp", "amqp-2", "amqp-3", "amqp-4"]
        context = client_context(certificates)
        plain = come_in(addresses["amqp"])
        plain.channel().queue_declare("q", durable=True)
        for protocol in ("amqp-2", "amqp-3"):  # the certificate is for all that do not say no
            connection = come_in(addresses[protocol], context)
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", "q", protocol.encode(), mandatory=True)
            connection.close()
            with pytest.raises(pika.exceptions.AMQPError):
                come_in(addresses[protocol])
        got = [plain.channel().basic_get("q", auto_ack=True)[2] for _ in range(2)]
        assert got == [b"amqp-2", b"amqp-3"]
        assert addresses["amqp-4"] == f"unix:{place}"
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(str(place))
            client.sendall(START)
            assert client.recv(1) == b"\1"
        plain.close()
        status, out, complaints = server.end()
    assert (status, complaints.count("no TLS")) == (0, 2), complaints
    assert [line.partition(":")[0] for line in out.splitlines()] == list(addresses)
    assert not place.exists()


def test_each_address_has_connections_of_its_own_number(path: Path) -> None:
    listens = ("--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--connections-max", "1")
    with served(path, *listens) as server:
        first, second = (come_in(address) for address in server.addresses().values())
        with pytest.raises(pika.exceptions.AMQPError):
            come_in(server.addresses()["amqp"])
        first.close()
        second.close()


def test_an_address_that_is_taken_ends_the_others(path: Path, tmp_path: Path) -> None:
    place = tmp_path / "socket"
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = "{}:{}".format(*other.getsockname())
        status, complaint = failed_after(path, "--listen", f"unix:{place}", "--listen", taken)
    assert (status, taken in complaint) == (3, True), complaint
    assert not place.exists()
    with pyqstore.open(path):  # nobody has it any more
        pass


def failed_after(path: Path, *options: str) -> tuple[int, str]:
    """As ``failed``, of one that has begun."""
    with served(path, *options) as server:
        _, complaint = server.process.communicate(timeout=60)
        return server.process.returncode, complaint


def test_tls_and_its_certificate_go_together(path: Path, certificates: Path) -> None:
    status, complaint = failed(path, "--listen", "amqps://127.0.0.1:0")
    assert (status, "give --tls-cert and --tls-key" in complaint) == (3, True), complaint
    for where in ("amqp://127.0.0.1:0", f"unix:{path}.socket"):
        status, complaint = failed(path, "--listen", where, *pair(certificates))
        assert (status, "no address speaks TLS" in complaint) == (3, True), complaint
    socket_with_tls = f"amqps://unix:{path}.socket"
    status, complaint = failed(path, "--listen", socket_with_tls, *pair(certificates))
    assert (status, "in the file system has none" in complaint) == (3, True), complaint


def test_a_socket_that_is_passed_speaks_tls_unless_it_is_in_the_file_system(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "socket"))
        found = endpoints([f"fd:{tcp.fileno()}", f"fd:{unix.fileno()}"], has_tls=True)
        assert [each.speaks_tls for each in found] == [True, False]
        assert endpoints([f"fd:{tcp.fileno()}"], has_tls=False) == [
            Endpoint(f"fd:{tcp.fileno()}", speaks_tls=False)
        ]

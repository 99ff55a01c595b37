"""``pyqstore serve`` as a service of systemd, whose part the tests play: they pass sockets, and
listen where a service tells how it is."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pika.exceptions
import pytest

import pyqstore
from pyqstore.serve.systemd import Manager, passed_sockets

from ..serving import Served, served

UNITS = Path(__file__).parents[3] / "examples" / "systemd"


class Systemd:
    """Hears what services tell."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.own.settimeout(60)
        self.own.bind(f"\0{address[1:]}" if address.startswith("@") else address)

    def hear(self) -> dict[str, str]:
        """The next that is told."""
        lines = self.own.recv(4096).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def await_end(self) -> dict[str, str]:
        """Past the signs of life."""
        while (told := self.hear()) == {"WATCHDOG": "1"}:
            pass
        return told


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    name = f"pyqstore-test-{os.getpid()}-{tmp_path.name}"
    heard = Systemd(f"@{name}" if request.param == "abstract" else str(tmp_path / "notify"))
    yield heard
    heard.own.close()


def come_in(address: str) -> pika.BlockingConnection:
    host, _, port = address.rpartition(":")
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), heartbeat=0))


def name_of(listening: socket.socket) -> str:
    return "{}:{}".format(*listening.getsockname())


# ---- what a service tells ----


def test_a_service_tells_systemd_when_it_is_ready_and_before_it_ends(
    path: Path, systemd: Systemd
) -> None:
    environment = {"NOTIFY_SOCKET": systemd.address}
    with served(path, "--listen", "127.0.0.1:0", environment=environment) as server:
        assert systemd.hear() == {"STATUS": "opening the store"}
        ready = systemd.hear()
        address = server.addresses()["amqp"]
        assert ready == {"READY": "1", "STATUS": f"accepting amqp at {address}"}
        connection = come_in(address)  # at once
        server.process.send_signal(signal.SIGTERM)
        assert systemd.hear()["STOPPING"] == "1"
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            connection.process_data_events(time_limit=60)
        assert server.process.wait(60) == 0


def test_stopping_is_told_while_connections_are_still_there(path: Path, systemd: Systemd) -> None:
    """A client that does not answer keeps the service for seconds."""
    environment = {"NOTIFY_SOCKET": systemd.address}
    with served(path, "--listen", "127.0.0.1:0", environment=environment) as server:
        address = server.addresses()["amqp"]
        while "READY" not in systemd.hear():
            pass
        connection = come_in(address)  # which answers nothing meanwhile
        server.process.send_signal(signal.SIGTERM)
        assert "STOPPING" in systemd.hear()
        assert server.ready.exists()
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            connection.process_data_events(time_limit=60)
        assert server.process.wait(60) == 0


def test_a_service_that_is_watched_shows_that_it_lives(path: Path, systemd: Systemd) -> None:
    environment = {"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "200000"}
    with served(path, "--listen", "127.0.0.1:0", environment=environment) as server:
        assert "STATUS" in systemd.hear()
        assert "READY" in systemd.hear()
        for _ in range(3):
            assert systemd.hear() == {"WATCHDOG": "1"}
        server.process.send_signal(signal.SIGTERM)
        assert systemd.await_end()["STOPPING"] == "1"
        assert server.process.wait(60) == 0
        systemd.own.setblocking(False)
        with pytest.raises(BlockingIOError):  # and nothing after that
            systemd.own.recv(1)


def test_a_watchdog_of_another_process_is_not_answered(path: Path, systemd: Systemd) -> None:
    environment = {
        "NOTIFY_SOCKET": systemd.address,
        "WATCHDOG_USEC": "100000",
        "WATCHDOG_PID": str(os.getpid()),
    }
    with served(path, "--listen", "127.0.0.1:0", environment=environment) as server:
        server.addresses()
        server.process.send_signal(signal.SIGTERM)
        told = [systemd.hear() for _ in range(3)]
    assert ["WATCHDOG" in each for each in told] == [False] * 3
    assert "STOPPING" in told[2]


def test_a_service_whose_store_has_failed_says_that_it_ends(path: Path, systemd: Systemd) -> None:
    environment = {"NOTIFY_SOCKET": systemd.address}
    with served(path, "--listen", "127.0.0.1:0", environment=environment) as server:
        connection = come_in(server.addresses()["amqp"])
        path.rename(path.with_name("away"))  # as test_serve_ends_when_its_store_has_failed
        channel = connection.channel()
        with pytest.raises(pika.exceptions.AMQPError):
            channel.queue_declare("q", durable=True)
        while "STOPPING" not in systemd.hear():
            pass
        assert server.process.wait(60) != 0


def test_a_service_works_though_nobody_hears_it(path: Path, tmp_path: Path) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "100000"}
    with served(path, "--listen", "127.0.0.1:0", environment=environment) as server:
        come_in(server.addresses()["amqp"]).close()
        status, _, complaints = server.end()
    assert status == 0
    assert complaints.count("NOTIFY_SOCKET") == 1


@pytest.mark.parametrize(
    ("variable", "value"),
    [("NOTIFY_SOCKET", "vsock:2:1"), ("WATCHDOG_USEC", "soon"), ("WATCHDOG_USEC", "0")],
)
def test_what_cannot_be_understood_is_refused_by_name(variable: str, value: str) -> None:
    environment = {"NOTIFY_SOCKET": "/run/notify", variable: value}
    with pytest.raises(ValueError, match=variable):
        Manager.of(environment)


def test_signs_of_life_are_twice_as_many_as_are_asked_for() -> None:
    every = Manager.of({"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "600000"})
    assert every.wait_s(1.0) == 0.3
    assert every.wait_s(0.1) == 0.1
    assert Manager.of({"WATCHDOG_USEC": "600000"}).wait_s(1.0) == 1.0  # nobody would hear


# ---- sockets ----


def test_a_service_accepts_at_the_socket_that_it_is_passed(path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        early = socket.create_connection(listening.getsockname(), timeout=60)
        with early, served(path, passed=[listening]) as server:
            early.sendall(b"AMQP\0\0\x09\x01")  # who came before the service waits for it
            assert early.recv(1) == b"\1"
            assert server.addresses() == {"amqp": name_of(listening)}
            come_in(name_of(listening)).close()
            status, out, _ = server.end()
        assert (status, out) == (0, f"amqp: accepting at {name_of(listening)}\n")
        # The socket is still there for the next.
        with served(path, passed=[listening]) as server:
            come_in(server.addresses()["amqp"]).close()
            assert server.end()[0] == 0


def test_several_sockets_are_all_accepted_at(path: Path, tmp_path: Path) -> None:
    place = tmp_path / "socket"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(place))
        unix.listen()
        with served(path, passed=[tcp, unix]) as server:
            assert server.addresses() == {"amqp": name_of(tcp), "amqp-2": f"unix:{place}"}
            connection = come_in(name_of(tcp))
            connection.channel().queue_declare("q", durable=True)
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(60)
                client.connect(str(place))
                client.sendall(b"AMQP\0\0\x09\x01")
                assert client.recv(1) == b"\1"
            assert server.end()[0] == 0
        assert place.exists()  # it is systemd's to remove
    with pyqstore.open(path, create=False) as store:
        assert store.queues() == ["q"]


def test_tls_is_spoken_at_a_socket_that_is_passed(path: Path, certificates: Path) -> None:
    from .test_listen_tls import client_context

    pair = ("--tls-cert", str(certificates / "server.pem"))
    pair += ("--tls-key", str(certificates / "server.key"))
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        served(path, *pair, passed=[listening]) as server,
    ):
        server.addresses()
        plain = socket.create_connection(listening.getsockname(), timeout=60)
        with client_context(certificates).wrap_socket(plain, server_hostname="localhost") as client:
            client.sendall(b"AMQP\0\0\x09\x01")
            assert client.recv(1) == b"\1"
        assert server.end()[0] == 0


def test_tls_at_a_socket_in_the_file_system_is_refused_when_it_is_passed_too(
    store: pyqstore.Store, tmp_path: Path, certificates: Path
) -> None:
    from .test_listen_tls import context_of

    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "socket"))
        unix.listen()
        with pytest.raises(ValueError, match="in the file system has none"):
            store.listen(f"fd:{unix.fileno()}", tls=context_of(certificates))


def test_a_passed_socket_of_other_machines_needs_users_as_an_address_does(
    store: pyqstore.Store,
) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listening:
        with pytest.raises(ValueError, match="without users"):
            store.listen(f"fd:{listening.fileno()}")
        own = os.dup(listening.fileno())
        with store.listen(f"fd:{own}", users={"ann": "secret"}) as listener:
            assert listener.address == name_of(listening)
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listening:
        own = os.dup(listening.fileno())
        with store.listen(f"fd:{own}") as listener:
            assert listener.address.startswith("[::1]:")


@pytest.mark.parametrize("address", ["fd:", "fd:x", "fd:-1", "fd:987654321", "fd:0x3"])
def test_what_is_no_descriptor_is_refused(store: pyqstore.Store, address: str) -> None:
    with pytest.raises(ValueError, match="listen on 'fd:"):
        store.listen(address)


def test_a_descriptor_that_does_not_listen_stays_its_owners(store: pyqstore.Store) -> None:
    with socket.socket() as idle:
        idle.bind(("127.0.0.1", 0))
        with pytest.raises(ValueError, match="no socket that listens"):
            store.listen(f"fd:{idle.fileno()}")
        idle.listen()


def refused(path: Path, *options: str, **more: object) -> tuple[int, str]:
    server = Served(path, *options, **more)  # type: ignore[arg-type]
    _, complaint = server.process.communicate(timeout=60)
    return server.process.returncode, complaint


def test_an_address_beside_a_passed_socket_is_refused(path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        status, complaint = refused(path, "--listen", "127.0.0.1:0", passed=[listening])
    assert (status, "leave --listen out" in complaint) == (2, True)
    assert not path.exists()


def test_sockets_of_another_process_are_left_alone(path: Path) -> None:
    others = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
    status, complaint = refused(path, environment=others)
    assert (status, "nothing to serve" in complaint) == (2, True)


def test_a_socket_that_arrow_flight_cannot_take_is_refused(path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        names = {"LISTEN_FDNAMES": "flight"}
        status, complaint = refused(path, passed=[listening], environment=names)
    assert (status, "Arrow Flight" in complaint) == (3, True)


def test_descriptors_that_are_not_there_are_refused_by_number() -> None:
    own = {"LISTEN_PID": str(os.getpid())}
    assert passed_sockets({}) == passed_sockets({"LISTEN_FDS": "1"}) == []
    assert passed_sockets({**own, "LISTEN_FDS": "0"}) == passed_sockets(dict(own)) == []
    with pytest.raises(ValueError, match="'many'"):
        passed_sockets({**own, "LISTEN_FDS": "many"})
    with pytest.raises(ValueError, match=r"descriptor \d+ is not open"):
        passed_sockets({**own, "LISTEN_FDS": str(10**6)})


# ---- the units ----


def test_the_units_are_what_the_command_takes(path: Path, systemd: Systemd) -> None:
    service = (UNITS / "pyqstore.service").read_text()
    (started,) = re.findall(r"^ExecStart=(.*)$", service, re.M)
    program, command, place, *options = shlex.split(started)
    assert (Path(program).name, command) == ("pyqstore", "serve")
    directory = Path(place.replace("${STATE_DIRECTORY}", str(path.parent)))
    environment = {"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "60000000"}
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        served(directory, *options, passed=[listening], environment=environment) as server,
    ):
        assert "STATUS" in systemd.hear()
        assert "READY" in systemd.hear()
        come_in(name_of(listening)).close()
        assert server.end()[0] == 0
        assert "STOPPING" in systemd.await_end()


def test_systemd_understands_the_units(tmp_path: Path) -> None:
    """Where it is installed; that they name each other is seen without it."""
    for name in ("pyqstore.service", "pyqstore.socket"):
        text = (UNITS / name).read_text()
        assert all(re.match(r"(\[\w+\]|#.*|\w+=.*|)$", line) for line in text.splitlines()), name
        (tmp_path / name).write_text(text.replace("/opt/pyqstore/bin/pyqstore", sys.executable))
    assert "Requires=pyqstore.socket" in (tmp_path / "pyqstore.service").read_text()
    if (tool := shutil.which("systemd-analyze")) is not None:
        units = [str(tmp_path / name) for name in ("pyqstore.service", "pyqstore.socket")]
        told = subprocess.run([tool, "verify", *units], capture_output=True, text=True, check=False)
        about_ours = [line for line in told.stderr.splitlines() if "pyqstore" in line]
        assert (told.returncode, about_ours) == (0, []), told.stderr

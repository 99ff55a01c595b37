"""Who comes in through Arrow Flight: users, tokens and certificates."""

from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight

import pyqstore
import pyqstore.flight
from pyqstore.flight import FlightListener

from ..support import batch_of


def test_users_come_in_by_password_and_by_token(store: pyqstore.Store) -> None:
    with pyqstore.flight.serve(store, users={"ann": "secret", "bob": "other"}) as server:
        url = f"grpc://{server.address}"
        with pyqstore.connect(url, user="ann", password="secret") as client:
            client.queue_declare("q", durable=True)
            token = client.token()
        with pyqstore.connect(url, token=token) as client:
            client.publish_batch(batch_of(b"1"), "", "q")
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


def test_a_server_without_users_takes_guests_only(flight_server: FlightListener) -> None:
    pyqstore.connect(flight_server.address, user="guest", password="guest").close()
    with pytest.raises(pyqstore.AccessRefused):
        pyqstore.connect(flight_server.address, user="guest", password="wrong")


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
        caller = flight.FlightClient(f"grpc://{server.address}")
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
            client.publish_batch(batch_of(b"1"), "", "q")
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

"""``pyqstore serve --vhost``: several stores in one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pika
import pika.exceptions
import pytest

import pyqstore
from pyqstore.serve.passwords import hashed
from pyqstore.serve.user_file import changed_users
from pyqstore.serve.user_list import Permission, User
from pyqstore.serve.vhost_folder import VhostFolder, VhostNote
from pyqstore.serve.vhosts import Stores, opened

from ..serving import Served, served
from ..support import run_command, wait_until
from .http_asking import GUEST, Asking, asked

LISTEN = ("--listen", "127.0.0.1:0")
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def connection_to(server: Served, vhost: str) -> pika.BlockingConnection:
    port = int(server.addresses()["amqp"].rpartition(":")[2])
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", port, virtual_host=vhost, heartbeat=0)
    )


def publish(connection: pika.BlockingConnection, body: bytes) -> None:
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", "q", body, PERSISTENT)


def bodies(path: Path) -> list[bytes]:
    with pyqstore.open(path, create=False) as store:
        assert store.recovery_report.torn_bytes == 0
        return [body for batch in store.browse("q") for body in batch["body"].to_pylist()]


def test_serve_has_a_store_for_each_vhost_and_ends_with_all_of_it_durable(tmp_path: Path) -> None:
    places = {"/": tmp_path / "a", "b": tmp_path / "of=b", "c d": tmp_path / "c"}
    options = [f"--vhost={name}={place}" for name, place in places.items() if name != "/"]
    with served(places["/"], *LISTEN, *options) as server:
        for name in places:
            publish(connection_to(server, name), name.encode())
        status, _, err = server.end()
        assert (status, err) == (0, "")
    assert {name: bodies(place) for name, place in places.items()} == {
        name: [name.encode()] for name in places
    }


def test_a_vhost_whose_store_fails_ends_alone_and_says_why(tmp_path: Path) -> None:
    place = tmp_path / "b"
    with served(tmp_path / "a", *LISTEN, "--vhost", f"b={place}") as server:
        staying, leaving = connection_to(server, "/"), connection_to(server, "b")
        idle = connection_to(server, "b")
        publish(staying, b"1")
        place.rename(tmp_path / "moved")
        with pytest.raises(pika.exceptions.AMQPError):
            publish(leaving, b"lost")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as ended:
            idle.process_data_events(time_limit=30)
        assert ended.value.reply_code == 320
        assert ended.value.reply_text == "CONNECTION_FORCED - vhost 'b' is down"
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="vhost b not found"):
            connection_to(server, "b")
        publish(staying, b"2")
        status, _, err = server.end()
        assert status == 0
        assert "vhost 'b' has ended, and others are served" in err
        assert "moved away while it was open" in err
    assert bodies(tmp_path / "a") == [b"1", b"2"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((*LISTEN, "--vhost", "b"), "vhost 'b': expected NAME=DIRECTORY"),
        ((*LISTEN, "--vhost", "=x"), "vhost '=x': expected NAME=DIRECTORY"),
        ((*LISTEN, "--vhost", "b=x", "--vhost", "b=y"), "vhost 'b' is there twice"),
        ((*LISTEN, "--vhost", "/=x"), "vhost '/' is there twice"),
        ((*LISTEN, "--vhost", "b=./a"), "vhosts '/' and 'b' have the same directory ./a"),
        (("--flight", "127.0.0.1:0", "--vhost", "b=x"), "--vhost needs --listen"),
    ],
)
def test_vhosts_that_cannot_be_make_no_store(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    done = run_command("serve", "a", *options, timeout=60, cwd=tmp_path)
    assert done.returncode != 0
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


# ---- the folder of --vhosts ----


def ask_of(server: Served, login: tuple[str, str] = GUEST) -> Asking:
    return Asking(server.addresses()["http"], login)


def serving(tmp_path: Path, *options: str) -> AbstractContextManager[Served]:
    place = f"--vhosts={tmp_path / 'vhosts'}"
    return served(tmp_path / "a", *LISTEN, "--http", "127.0.0.1:0", place, *options)


def names(ask: Asking) -> list[str]:
    return [each["name"] for each in ask.get("vhosts")]


def test_vhosts_made_over_http_serve_at_once_and_after_a_restart(tmp_path: Path) -> None:
    said = {"description": "of tests", "tags": "a,b"}
    with serving(tmp_path) as server:
        ask = ask_of(server)
        assert ask("PUT", "/api/vhosts/b%2Fc", said).status == 201
        assert ask("PUT", "/api/vhosts/b%2Fc", said).status == 204
        assert ask("PUT", "/api/vhosts/%2E%2E").status == 201
        assert names(ask) == ["/", "b/c", ".."]
        publish(connection_to(server, "b/c"), b"kept")
        assert server.end()[0] == 0
    assert bodies(tmp_path / "vhosts" / "b%2Fc") == [b"kept"]
    with serving(tmp_path) as server:
        found = ask_of(server).get("vhosts/b%2Fc")
        assert (found["description"], found["tags"], found["messages"]) == (
            "of tests",
            ["a", "b"],
            1,
        )
        assert connection_to(server, "b/c").channel().basic_get("q", auto_ack=True)[2] == b"kept"
        assert ask_of(server)("PUT", "/api/vhosts/b%2Fc", {"tags": ""}).status == 204
        found = ask_of(server).get("vhosts/b%2Fc")
        assert (found["description"], found["tags"]) == ("of tests", [])


def test_a_deleted_vhost_ends_its_clients_and_is_gone_for_good(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        ask = ask_of(server)
        for name in ("b", "c"):
            ask("PUT", f"/api/vhosts/{name}", {"description": name})
        leaving, staying = connection_to(server, "b"), connection_to(server, "c")
        publish(leaving, b"1")
        assert ask("DELETE", "/api/vhosts/b").status == 204
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as ended:
            leaving.process_data_events(time_limit=30)
        assert ended.value.reply_code == 320
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="vhost b not found"):
            connection_to(server, "b")
        publish(staying, b"2")
        assert ask("DELETE", "/api/vhosts/b").status == 404
        assert ask("PUT", "/api/vhosts/b").status == 201
        again = ask.get("vhosts/b")
        assert (again["description"], again["messages"]) == ("", 0)
        assert server.end()[0] == 0
    assert sorted(each.name for each in (tmp_path / "vhosts").iterdir()) == [
        ".vhosts.json",
        "b",
        "c",
    ]


@pytest.mark.parametrize(
    ("method", "name", "words"),
    [
        ("DELETE", "%2F", "vhost '/' was given when the server was started"),
        ("DELETE", "given", "vhost 'given' was given when the server was started"),
        ("PUT", "%00", "no name of a further vhost"),
        ("PUT", "x" * 256, "no name of a further vhost"),
        ("PUT", "%2F" * 100, "is too long"),
    ],
)
def test_vhosts_that_cannot_change_say_why(
    tmp_path: Path, method: str, name: str, words: str
) -> None:
    with serving(tmp_path, "--vhost", f"given={tmp_path / 'given'}") as server:
        answer = ask_of(server)(method, f"/api/vhosts/{name}")
        assert answer.status == 400
        assert words in answer.json["reason"]
        assert names(ask_of(server)) == ["/", "given"]


def test_without_the_folder_no_vhost_is_made_over_http(tmp_path: Path) -> None:
    with served(tmp_path / "a", *LISTEN, "--http", "127.0.0.1:0") as server:
        answer = ask_of(server)("PUT", "/api/vhosts/b")
        assert (answer.status, "in the folder of --vhosts" in answer.json["reason"]) == (400, True)
    with pyqstore.open(tmp_path / "a") as store, asked(store) as ask:
        answer = ask("PUT", "/api/vhosts/b")
        assert (answer.status, "the program that serves this" in answer.json["reason"]) == (
            400,
            True,
        )


def test_who_makes_a_vhost_may_do_everything_in_it_and_the_next_one_nothing(tmp_path: Path) -> None:
    with changed_users(tmp_path / "a", create=True) as users:
        for name in ("root", "other"):
            users[name] = User(hashed("p"), ("administrator",), {"/": Permission()})
    with serving(tmp_path) as server:
        ask = ask_of(server, ("root", "p"))

        def permitted() -> list[str]:
            return [each["user"] for each in ask.get("vhosts/b/permissions")]

        ask("PUT", "/api/vhosts/b")
        assert permitted() == ["root"]
        every = {"configure": ".*", "write": ".*", "read": ".*"}
        ask("PUT", "/api/permissions/b/other", every)
        ask("DELETE", "/api/vhosts/b")
        ask("PUT", "/api/vhosts/b", login=("other", "p"))
        assert permitted() == ["other"]


def test_imported_definitions_make_the_vhosts_that_they_name(tmp_path: Path) -> None:
    queue = {"name": "q", "vhost": "b", "durable": True, "auto_delete": False, "arguments": {}}
    with serving(tmp_path) as server:
        ask = ask_of(server)
        answer = ask("POST", "/api/definitions", {"queues": [queue]})
        assert (answer.status, "no_such_vhost" in answer.json["reason"]) == (400, True)
        document = {"vhosts": [{"name": "b", "description": "d"}], "queues": [queue]}
        assert ask("POST", "/api/definitions", document).status == 204
        told = {"name": "b", "description": "d", "tags": []}
        assert told in ask.get("definitions")["vhosts"]
        assert [each["name"] for each in ask.get("queues/b")] == ["q"]


def test_what_the_power_left_of_a_deleted_vhost_goes_at_the_next_start(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        ask_of(server)("PUT", "/api/vhosts/b")
    folder = tmp_path / "vhosts"
    (folder / "b").rename(folder / ".removed-0123")
    with serving(tmp_path) as server:
        assert names(ask_of(server)) == ["/"]
    assert not (folder / ".removed-0123").exists()


def test_a_folder_of_vhosts_is_one_servers(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        ask_of(server)("PUT", "/api/vhosts/b")
        options = ["other", *LISTEN, "--vhosts", "vhosts"]
        done = run_command("serve", *options, timeout=60, cwd=tmp_path)
        assert done.returncode != 0
        assert "another server has its virtual hosts there" in done.stderr
        assert names(ask_of(server)) == ["/", "b"]


def test_a_vhost_that_was_given_is_not_made_anew_when_it_has_failed(tmp_path: Path) -> None:
    with serving(tmp_path, "--vhost", f"given={tmp_path / 'given'}") as server:
        connection = connection_to(server, "given")
        (tmp_path / "given").rename(tmp_path / "moved")
        with pytest.raises(pika.exceptions.AMQPError):
            publish(connection, b"lost")
        wait_until(lambda: names(ask_of(server)) == ["/"])
        answer = ask_of(server)("PUT", "/api/vhosts/given")
        assert (answer.status, "was given" in answer.json["reason"]) == (400, True)
        assert names(ask_of(server)) == ["/"]


@pytest.mark.parametrize("name", ["a b", "notes.txt"])
def test_a_folder_of_vhosts_with_other_things_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "vhosts"
    folder.mkdir()
    (folder / name).write_text("mine")
    done = run_command("serve", "a", *LISTEN, "--vhosts", "vhosts", timeout=60, cwd=tmp_path)
    assert done.returncode != 0
    assert "no store of a virtual host" in done.stderr
    assert not (tmp_path / "a").exists()


# ---- stores that are no virtual host's, or not now ----


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    folder = VhostFolder(tmp_path / "vhosts")
    with opened(tmp_path / "a", folder.places(), {}, folder) as stores:
        yield stores


def fail(stores: Stores, name: str) -> None:
    """As its disk would."""
    stores.vhosts.pop(name).close()


def test_a_directory_that_was_put_there_since_the_start_is_never_deleted(
    tmp_path: Path, stores: Stores
) -> None:
    mine = tmp_path / "vhosts" / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years")
    with pytest.raises(KeyError):
        stores.remove("mine", lambda: pytest.fail("nothing begins"))
    with pytest.raises(ValueError, match="is there already: start the server again"):
        stores.add("mine", {})
    assert (mine / "thesis.txt").read_text() == "years"


@pytest.mark.parametrize("read_only", [False, True])
def test_a_failed_vhost_whose_store_somebody_has_open_is_not_deleted(
    tmp_path: Path, stores: Stores, read_only: bool
) -> None:
    stores.add("b", {})
    fail(stores, "b")
    place = tmp_path / "vhosts" / "b"
    with pytest.raises(ValueError, match="delete the vhost, or start the server again"):
        stores.add("b", {})
    refused = pytest.raises(ValueError, match="is open: close it there first")
    with pyqstore.open(place, read_only=read_only), refused:
        stores.remove("b", lambda: pytest.fail("nothing begins"))
    stores.remove("b", lambda: None)
    assert not place.exists()
    assert stores.add("b", {})


def test_a_vhost_whose_store_was_moved_away_is_deleted(tmp_path: Path, stores: Stores) -> None:
    stores.add("b", {"description": "gone"})
    fail(stores, "b")
    (tmp_path / "vhosts" / "b").rename(tmp_path / "moved")
    stores.remove("b", lambda: None)
    assert stores.add("b", {})
    assert stores.note("b") == VhostNote()


def test_a_vhost_that_cannot_be_made_leaves_nothing_behind(tmp_path: Path, stores: Stores) -> None:
    def refuse(name: str, store: pyqstore.Store) -> None:
        raise OSError(f"no room for {name} beside {store.path}")

    stores.follow(refuse)
    with pytest.raises(OSError, match="no room for b"):
        stores.add("b", {"description": "of b"})
    assert (stores.note("b"), stores.vhosts) == (VhostNote(), {})
    assert [each.name for each in (tmp_path / "vhosts").iterdir()] in ([".vhosts.json"], [])
    assert "of b" not in (tmp_path / "vhosts" / ".vhosts.json").read_text()

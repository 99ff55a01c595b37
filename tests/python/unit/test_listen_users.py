"""Who may come in where a store has users of its own, and what they may do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pika.exceptions
import pytest

import pyqstore
from pyqstore.serve.passwords import Secret, hashed
from pyqstore.serve.stored_users import StoredUsers
from pyqstore.serve.user_file import changed_users
from pyqstore.serve.user_list import Permission, User

from ..serving import served
from ..support import wait_until

SECRET = hashed("secret")  # that takes a while
ALL = {"/": Permission()}


def put(directory: Path, **users: User) -> None:
    with changed_users(directory, create=True) as known:
        known.update(users)


@contextmanager
def connected(
    address: str, user: str, password: str = "secret", vhost: str = "/"
) -> Iterator[pika.BlockingConnection]:
    port = int(address.rpartition(":")[2])
    credentials = pika.PlainCredentials(user, password)
    connection = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", port, vhost, credentials, heartbeat=0)
    )
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


def refused(address: str, user: str, password: str = "secret") -> None:
    with (
        pytest.raises(pika.exceptions.ProbableAuthenticationError),
        connected(address, user, password),
    ):
        pass


# ---- coming in ----


def test_users_are_those_of_the_store_after_the_process_went_elsewhere(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(path, ann=User(SECRET, permissions=ALL))
    monkeypatch.chdir(path.parent)
    with pyqstore.open(path.name) as store:
        assert store.directory == str(path)
        elsewhere = path.parent / "elsewhere"
        elsewhere.mkdir()
        monkeypatch.chdir(elsewhere)
        with store.listen("127.0.0.1:0") as listener:
            refused(listener.address, "guest", "guest")
            with connected(listener.address, "ann"):
                pass
    assert list(elsewhere.iterdir()) == []


def test_users_of_a_store_come_in_and_guest_does_not(path: Path) -> None:
    put(path, ann=User(SECRET, permissions=ALL))
    with pyqstore.open(path) as store:
        address = store.listen("0.0.0.0:0").address  # which guest alone would not allow
        with connected(address, "ann"):
            pass
        refused(address, "ann", "wrong")
        refused(address, "guest", "guest")


def test_users_that_are_given_stand_before_those_of_the_store(path: Path) -> None:
    put(path, ann=User(SECRET, permissions=ALL))
    with pyqstore.open(path) as store:
        address = store.listen("127.0.0.1:0", users={"bob": "x"}).address
        with connected(address, "bob", "x"):
            pass
        refused(address, "ann")


def test_a_change_of_the_users_is_seen_while_the_store_is_served(path: Path) -> None:
    with pyqstore.open(path) as store:
        address = store.listen("127.0.0.1:0").address
        with connected(address, "guest", "guest"):
            pass
        put(path, ann=User(SECRET, permissions=ALL))
        with connected(address, "ann"):
            pass
        refused(address, "guest", "guest")
        (path / "users.json").write_text("{")
        with connected(address, "ann"):
            pass


def test_a_store_with_broken_users_is_not_listened_for(path: Path) -> None:
    put(path, ann=User(SECRET))
    (path / "users.json").write_text('{"users": [7]}')
    with pyqstore.open(path) as store:
        with pytest.raises(ValueError, match=r"users.json: users\[0\]: expected an object"):
            store.listen("127.0.0.1:0")
        store.queue("q").put(b"x")


def test_serve_reads_the_users_that_a_command_has_added(path: Path) -> None:
    add = [sys.executable, "-m", "pyqstore", "user", "add", str(path)]
    subprocess.run([*add, "ann"], input="secret\n", text=True, check=True)
    with served(path, "--listen", "127.0.0.1:0") as server:
        address = server.addresses()["amqp"]
        refused(address, "guest", "guest")
        with connected(address, "ann"):
            pass
        subprocess.run([*add, "bob"], input="other\n", text=True, check=True)
        with connected(address, "bob", "other"):
            pass
        assert server.end()[0] == 0


def test_serve_says_what_is_wrong_with_the_users(path: Path) -> None:
    put(path, ann=User(Secret("scrypt", SECRET.text)))
    (path / "users.json").write_text("[]")
    ended = subprocess.run(
        [sys.executable, "-m", "pyqstore", "serve", str(path), "--listen", "127.0.0.1:0"],
        text=True,
        capture_output=True,
        timeout=120,
    )
    assert ended.returncode == 3
    assert ended.stderr == f"pyqstore: {path}/users.json: expected a JSON object, not a list\n"
    assert not (path / "MANIFEST").exists()


# ---- what they may do ----


def expect_refused(act: Callable[[], object]) -> str:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        act()
    assert closed.value.reply_code == 403
    return str(closed.value.reply_text)


def test_a_user_may_do_what_its_patterns_say(path: Path) -> None:
    permission = Permission(configure="^mine", write="amq.default|^mine", read="^(mine|log)")
    put(path, ann=User(SECRET, permissions={"/": permission}))
    with pyqstore.open(path) as store:
        address = store.listen("127.0.0.1:0").address
        store.queue("log").put(b"x")
        with connected(address, "ann") as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("mine.1")
            for number in range(100):  # more names than a connection remembers
                channel.queue_declare(f"mine.{number}")
            channel.basic_publish("", "mine.1", b"x", mandatory=True)
            assert channel.basic_get("mine.1", auto_ack=True)[2] == b"x"
            assert channel.basic_get("log")[2] == b"x"
            said = expect_refused(lambda: channel.queue_purge("yours"))
            assert said.endswith("access to queue 'yours' in vhost '/' refused for user 'ann'")
            expect_refused(lambda: connection.channel().queue_declare("yours"))
            expect_refused(lambda: connection.channel().queue_delete("log"))
            other = connection.channel()
            other.confirm_delivery()
            expect_refused(lambda: other.basic_publish("amq.fanout", "", b"x"))
        assert "yours" not in store.queues()


def test_what_a_client_sent_before_it_went_is_done_when_its_permission_is_known(path: Path) -> None:
    put(path, ann=User(SECRET, permissions=ALL))
    with pyqstore.open(path) as store:
        address = store.listen("127.0.0.1:0").address
        store.queue("q")
        for _ in range(20):
            with connected(address, "ann") as connection:
                connection.channel().basic_publish("", "q", b"x")
        wait_until(lambda: store.queue_status("q")["messages_ready"] == 20)


def test_a_permission_that_is_taken_away_ends_for_a_client_that_is_in(path: Path) -> None:
    put(path, ann=User(SECRET, permissions=ALL), bob=User(SECRET, permissions=ALL))
    with pyqstore.open(path) as store:
        address = store.listen("127.0.0.1:0").address
        with connected(address, "ann") as connection, connected(address, "bob") as other:
            connection.channel().queue_declare("q")
            other.channel().queue_declare("q")
            put(path, ann=User(SECRET, permissions={"/": Permission("", "", "")}))
            with changed_users(path) as users:
                del users["bob"]

            def is_refused(client: pika.BlockingConnection) -> bool:
                try:
                    client.channel().queue_declare("q")
                except pika.exceptions.ChannelClosedByBroker as closed:
                    return bool(closed.reply_code == 403)
                return False

            wait_until(lambda: is_refused(connection))
            wait_until(lambda: is_refused(other))
            put(path, ann=User(SECRET, permissions=ALL))
            wait_until(lambda: not is_refused(connection))


def test_a_user_without_permissions_does_not_come_in(path: Path) -> None:
    put(path, ann=User(SECRET), bob=User(SECRET, permissions={"other": Permission()}))
    with pyqstore.open(path) as store:
        address = store.listen("127.0.0.1:0").address
        for name in ("ann", "bob"):
            with (
                pytest.raises(
                    pika.exceptions.ProbableAccessDeniedError,
                    match=f"access to vhost '/' refused for user '{name}'",
                ),
                connected(address, name),
            ):
                pass


def test_a_user_comes_into_the_vhosts_that_it_has_permissions_in(
    path: Path, tmp_path: Path
) -> None:
    put(path, ann=User(SECRET, permissions={"b": Permission(".*", "", "")}))
    with pyqstore.open(path) as store, pyqstore.open(tmp_path / "b") as other:
        address = store.listen("127.0.0.1:0", vhosts={"b": other}).address
        with connected(address, "ann", vhost="b") as client:
            channel = client.channel()
            channel.queue_declare("q", durable=True)
            text = expect_refused(lambda: channel.basic_get("q"))
            assert (
                text == "ACCESS_REFUSED - access to queue 'q' in vhost 'b' refused for user 'ann'"
            )
        with (
            pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="vhost '/' refused"),
            connected(address, "ann"),
        ):
            pass
        assert (store.queues(), other.queues()) == ([], ["q"])


def test_a_pattern_means_names_as_bytes_and_an_empty_one_none(path: Path) -> None:
    put(path, ann=User(permissions={"/": Permission("", "^.$", "é")}))
    users = StoredUsers(path)
    assert [users.permits("ann", "/", "configure", name) for name in ("", "q")] == [0, 0]
    assert [users.permits("ann", "/", "write", name) for name in ("q", "é")] == [1, 0]
    assert [users.permits("ann", "/", "read", name) for name in ("café", "cafe")] == [1, 0]
    assert users.permits("ann", "other", "read", "é") == 0
    assert users.permits("bob", "/", "read", "é") == 0

"""``Store.listen``: pika's clients use a store, and what the listener owes its owner."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import pyqstore
from pyqstore.serve import door as doors
from pyqstore.serve.door import Door
from pyqstore.serve.users import Users

from ..differential.wire import Wire
from ..support import get, own_host, publish_numbers, run_python, wait_until

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def port_of(listener: pyqstore.Listener) -> int:
    return int(listener.address.rpartition(":")[2])


def parameters(
    listener: pyqstore.Listener, user: str = "guest", password: str = "guest", **more: Any
) -> pika.ConnectionParameters:
    credentials = pika.PlainCredentials(user, password)
    more = {"heartbeat": 0, "socket_timeout": 30} | more
    host = listener.address.rpartition(":")[0]
    return pika.ConnectionParameters(host, port_of(listener), credentials=credentials, **more)


@contextmanager
def connected(
    listener: pyqstore.Listener, *arguments: str, **more: Any
) -> Iterator[pika.BlockingConnection]:
    connection = pika.BlockingConnection(parameters(listener, *arguments, **more))
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


@pytest.fixture
def listener(store: pyqstore.Store) -> pyqstore.Listener:
    return store.listen("127.0.0.1:0")


@pytest.fixture
def client(listener: pyqstore.Listener) -> Iterator[BlockingChannel]:
    with connected(listener) as connection:
        yield connection.channel()


# ---- the main job ----


def test_what_one_client_publishes_with_confirms_another_consumes_with_acks(
    listener: pyqstore.Listener, store: pyqstore.Store
) -> None:
    count = 500
    with connected(listener) as one, connected(listener) as other:
        publisher, consumer = one.channel(), other.channel()
        publisher.queue_declare("work", durable=True)
        publisher.confirm_delivery()
        for number in range(count):
            publisher.basic_publish("", "work", b"%d" % number, PERSISTENT, mandatory=True)
        consumer.basic_qos(prefetch_count=50)
        got = []
        for method, _, body in consumer.consume("work"):
            got.append(int(body))
            consumer.basic_ack(method.delivery_tag)
            if len(got) == count:
                break
        assert got == list(range(count))
    wait_until(lambda: store.queue_status("work")["messages_ready"] == 0)
    status = store.queue_status("work")
    assert (status["messages_unacked"], status["consumers"]) == (0, 0)


def test_a_body_of_many_frames_comes_back_as_it_was(client: BlockingChannel) -> None:
    body = os.urandom(3_000_001)
    client.queue_declare("large", durable=True)
    client.confirm_delivery()
    client.basic_publish("", "large", body, PERSISTENT)
    assert client.basic_get("large", auto_ack=True)[2] == body


def test_many_publishers_of_large_bodies_are_held_back_and_none_is_closed(tmp_path: Path) -> None:
    body = os.urandom(2 << 20)
    with pyqstore.open(tmp_path / "small.qs", memory_budget="4MiB") as store:
        listener = store.listen("127.0.0.1:0")

        def publish() -> None:
            with connected(listener) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                for _ in range(3):
                    channel.basic_publish("", "large", body, PERSISTENT, mandatory=True)

        with connected(listener) as connection:
            connection.channel().queue_declare("large", durable=True)
        with ThreadPoolExecutor(8) as publishers:
            for future in [publishers.submit(publish) for _ in range(8)]:
                future.result()
        assert store.queue_status("large")["messages_ready"] == 24


def test_properties_and_headers_come_back_as_they_were(client: BlockingChannel) -> None:
    client.queue_declare("q")
    sent = pika.BasicProperties(
        content_type="text/plain",
        headers={"n": 7, "list": [1, "two"], "table": {"deep": True}, "none": None},
        priority=3,
        correlation_id="c",
        reply_to="r",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        app_id="a",
    )
    client.basic_publish("", "q", b"x", sent)
    assert client.basic_get("q", auto_ack=True)[1] == sent


def test_an_unroutable_mandatory_message_comes_back(client: BlockingChannel) -> None:
    client.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        client.basic_publish("", "nowhere", b"x", mandatory=True)


def test_an_error_closes_the_channel_alone(listener: pyqstore.Listener) -> None:
    with connected(listener) as connection:
        channel, other = connection.channel(), connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            channel.queue_declare("not-there", passive=True)
        assert refused.value.reply_code == 404
        other.queue_declare("q", exclusive=True)
        assert connection.is_open


def test_messages_of_the_owner_and_of_clients_are_the_same(
    client: BlockingChannel, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q", durable=True)
    channel.basic_publish("", "q", b"from the owner")
    assert client.basic_get("q", auto_ack=True)[2] == b"from the owner"
    client.basic_publish("", "q", b"from a client")
    client.queue_declare("q", passive=True)  # answered behind the publish
    message = get(channel, "q", auto_ack=True)
    assert message.body == b"from a client"


def test_exclusive_queues_go_with_their_connection(
    listener: pyqstore.Listener, store: pyqstore.Store
) -> None:
    with connected(listener) as connection:
        connection.channel().queue_declare("mine", exclusive=True)
        assert store.queues() == ["mine"]
    wait_until(lambda: store.queues() == [])


def test_many_clients_at_once_get_each_message_once(listener: pyqstore.Listener) -> None:
    clients, each = 8, 200
    got: list[bytes] = []
    lock = threading.Lock()

    def publish(name: int) -> None:
        with connected(listener) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for number in range(each):
                channel.basic_publish("", "shared", b"%d %d" % (name, number), PERSISTENT)

    def consume() -> None:
        with connected(listener) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=10)
            for method, _, body in channel.consume("shared", inactivity_timeout=0.2):
                if method is not None:
                    channel.basic_ack(method.delivery_tag)
                with lock:
                    if method is not None:
                        got.append(body)
                    if len(got) >= clients * each:
                        return

    with connected(listener) as connection:
        connection.channel().queue_declare("shared", durable=True)
    threads = [threading.Thread(target=publish, args=(name,)) for name in range(clients)]
    threads += [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(
        b"%d %d" % (name, number) for name in range(clients) for number in range(each)
    )


# ---- who may come in ----


def refused(listener: pyqstore.Listener, *arguments: str) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(parameters(listener, *arguments))


def test_without_users_guest_comes_in_and_nobody_else(listener: pyqstore.Listener) -> None:
    with connected(listener):
        pass
    refused(listener, "guest", "wrong")
    refused(listener, "somebody", "guest")
    refused(listener, "", "")
    assert listener.stats()["logins_refused"] == 3


def test_with_users_guest_does_not_come_in(store: pyqstore.Store) -> None:
    listener = store.listen("127.0.0.1:0", users={"ann": "a:b", "bob": "ü"})
    with connected(listener, "ann", "a:b"), connected(listener, "bob", "ü"):
        pass
    refused(listener, "guest", "guest")
    refused(listener, "ann", "ü")


def test_a_function_says_who_comes_in(store: pyqstore.Store) -> None:
    asked = []

    def may_enter(user: str, password: str, peer: str) -> bool:
        asked.append((user, password, peer.rpartition(":")[0]))
        if user == "raises":
            raise ValueError("no such user")
        return password == user[::-1]

    listener = store.listen("127.0.0.1:0", users=may_enter)
    with connected(listener, "abc", "cba"):
        pass
    refused(listener, "abc", "abc")
    refused(listener, "raises", "x")
    with connected(listener, "abc", "cba"):
        pass
    assert asked[0] == ("abc", "cba", "127.0.0.1")


def test_an_empty_password_is_refused_before_a_function_is_asked() -> None:
    """Directories bind with an empty password as anybody."""
    asked: list[str] = []

    def may_enter(_user: str, password: str, _peer: str) -> bool:
        asked.append(password)
        return True

    door = Door(may_enter)
    assert not door("ann", "", "10.0.0.1:1000", False)
    assert asked == []
    assert door("ann", "x", "10.0.0.1:1000", False)


def test_a_function_that_raises_for_wrong_passwords_is_not_asked_without_limit() -> None:
    asked: list[str] = []

    def may_enter(_user: str, password: str, _peer: str) -> bool:
        asked.append(password)
        raise PermissionError("wrong password")

    door = Door(may_enter)
    for number in range(10):
        with pytest.raises(PermissionError):
            door("ann", str(number), "10.0.0.1:1000", False)
    assert not door("ann", "secret", "10.0.0.1:1000", False)
    assert len(asked) == 10


def come_and_go(listener: pyqstore.Listener, user: str) -> None:
    with connected(listener, user, "x"):
        pass


def test_while_a_login_is_looked_at_others_are_served(store: pyqstore.Store) -> None:
    held, go_on = threading.Event(), threading.Event()

    def may_enter(user: str, _password: str, _peer: str) -> bool:
        if user == "slow":
            held.set()
            go_on.wait(30)
        return True

    listener = store.listen("127.0.0.1:0", users=may_enter)
    with connected(listener, "first", "x") as connection:
        slow = threading.Thread(target=come_and_go, args=(listener, "slow"))
        slow.start()
        assert held.wait(30)
        channel = connection.channel()
        channel.queue_declare("q", exclusive=True)
        channel.basic_publish("", "q", b"x")
        assert channel.basic_get("q", auto_ack=True)[2] == b"x"
        go_on.set()
        slow.join()


def test_slow_logins_do_not_hold_up_another(store: pyqstore.Store) -> None:
    """Three of the four threads that ask are away."""
    held, go_on = threading.Semaphore(0), threading.Event()

    def may_enter(user: str, _password: str, _peer: str) -> bool:
        if user == "slow":
            held.release()
            go_on.wait(60)
        return True

    listener = store.listen("127.0.0.1:0", users=may_enter)
    with ThreadPoolExecutor(3) as slow:
        waiting = [slow.submit(come_and_go, listener, "slow") for _ in range(3)]
        try:
            for _ in waiting:
                assert held.acquire(timeout=30)
            come_and_go(listener, "quick")
            assert not any(future.done() for future in waiting)
        finally:
            go_on.set()
        for future in waiting:
            future.result()


def test_an_empty_list_of_users_does_not_let_guest_in(store: pyqstore.Store) -> None:
    with pytest.raises(ValueError, match="users is empty"):
        store.listen("127.0.0.1:0", users={})


def test_an_address_of_another_machine_that_fails_ten_times_is_refused_for_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    door = Door(Users({"ann": "secret"}))
    for second in range(10):
        now[0] = float(second)
        assert door("ann", "secret", "10.0.0.1:1000", False)
        assert not door("ann", "guess", "10.0.0.1:1000", False)
        assert not door("ann", "guess", "127.0.0.1:1000", True)
    assert not door("ann", "secret", "10.0.0.1:2000", False)
    assert door("ann", "secret", "10.0.0.11:2000", False)
    assert door("ann", "secret", "127.0.0.1:2000", True)
    now[0] = 59.9
    assert not door("ann", "secret", "10.0.0.1:2000", False)
    now[0] = 60.0
    assert door("ann", "secret", "10.0.0.1:2000", False)


def test_failures_of_one_ipv6_network_count_as_those_of_one_address() -> None:
    """A client has 2**64 of them."""
    door = Door(Users({"ann": "secret"}))
    for number in range(10):
        assert not door("ann", "guess", f"[2001:db8:1:2::{number}]:1000", False)
    assert not door("ann", "secret", "[2001:db8:1:2:ffff::1]:1000", False)
    assert door("ann", "secret", "[2001:db8:1:3::1]:1000", False)
    for number in range(10):
        assert not door("ann", "guess", f"10.0.0.1:{number}", False)
    assert not door("ann", "secret", "[::ffff:10.0.0.1]:1000", False)
    assert door("ann", "secret", "[::ffff:10.0.0.2]:1000", False)


def test_each_login_that_fails_is_answered_later_than_the_one_before(
    listener: pyqstore.Listener,
) -> None:
    began = time.monotonic()
    for _ in range(4):
        refused(listener, "guest", "wrong")
    assert time.monotonic() - began >= 0.1 + 0.2 + 0.4
    with connected(listener):
        pass


def test_clients_that_go_before_they_hear_that_they_are_refused_leave_nothing(
    listener: pyqstore.Listener,
) -> None:
    clients = [Wire(port_of(listener), 60) for _ in range(8)]
    for client in clients:
        client.login(b"\0guest\0wrong")
    wait_until(lambda: listener.stats()["logins_refused"] == len(clients), 60)
    for client in clients:
        client.close()
    wait_until(lambda: listener.stats()["connections"] == 0, 60)
    with connected(listener):
        pass


def test_failures_of_so_many_addresses_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "_HOSTS", 3)
    door = Door(Users({"ann": "secret"}))
    for host in range(5):
        assert not door("ann", "guess", f"10.0.0.{host}:1", False)
    assert sorted(door._failures) == ["10.0.0.2", "10.0.0.3", "10.0.0.4"]


def test_a_name_of_a_client_wrote_lines_of_its_own_into_the_log(
    store: pyqstore.Store, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", "pyqstore"), store.listen("127.0.0.1:0") as listener:
        refused(listener, "x\nAMQP 10.0.0.1:1: all is well\x7f", "x")
        store.close()  # the last note has been told
    told = [r.getMessage() for r in caplog.records if "login as" in r.getMessage()]
    assert [text.partition("login as ")[2] for text in told] == [
        "'x?AMQP 10.0.0.1:1: all is well?' refused"
    ]


@pytest.mark.parametrize("users", [5, {"ann": 1}, {b"ann": "a"}])
def test_users_of_another_type_are_refused_by_name(store: pyqstore.Store, users: Any) -> None:
    with pytest.raises(TypeError, match="users"):
        store.listen("127.0.0.1:0", users=users)


def test_other_machines_need_users(store: pyqstore.Store) -> None:
    with pytest.raises(ValueError, match="give users, or listen on"):
        store.listen("0.0.0.0:0")
    store.listen("0.0.0.0:0", users={"ann": "a"}).close()


# ---- addresses ----


def test_an_address_that_is_taken_is_refused_with_what_to_do(
    store: pyqstore.Store, listener: pyqstore.Listener
) -> None:
    with pytest.raises(OSError, match=f"{listener.address}.*in use.*take another port"):
        store.listen(listener.address)
    with pytest.raises(ValueError, match="HOST:PORT"):
        store.listen("127.0.0.1")
    with connected(listener):
        pass  # it goes on


def test_a_socket_in_the_file_system_serves(store: pyqstore.Store, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    listener = store.listen(f"unix:{path}")
    assert listener.address == f"unix:{path}"
    assert path.stat().st_mode & 0o777 == 0o600
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"AMQP\0\0\x09\x01")
        assert client.recv(7)[:3] == b"\1\0\0"
    listener.close()
    assert not path.exists()


def test_options_out_of_range_are_refused_by_name(store: pyqstore.Store) -> None:
    for name, value in (
        ("heartbeat", -1),
        ("connections_max", 0),
        ("channel_max", 65_536),
        ("frame_max", 4095),
    ):
        with pytest.raises(ValueError, match=name):
            store.listen("127.0.0.1:0", **{name: value})  # type: ignore[arg-type]


def test_clients_use_the_ways_of_rabbitmq_unless_told_otherwise(store: pyqstore.Store) -> None:
    with connected(store.listen("127.0.0.1:0")) as connection:
        told = connection._impl.server_properties
        assert told["product"] == "RabbitMQ"
        assert told["cluster_name"] == told["information"] == "pyqstore"


def test_what_is_offered_is_what_was_asked_for(store: pyqstore.Store) -> None:
    listener = store.listen(
        "127.0.0.1:0", product="queues", heartbeat=7, channel_max=3, frame_max=8192
    )
    with connected(listener, heartbeat=None) as connection:
        told = connection._impl
        assert told.server_properties["product"] == "queues"
        assert (told.params.heartbeat, told.params.channel_max, told.params.frame_max) == (
            7,
            3,
            8192,
        )


# ---- the end ----


def test_a_closed_store_tells_its_clients_and_keeps_what_they_published(path: Path) -> None:
    store, host = pyqstore.open(path), own_host()
    listener = store.listen(f"{host}:0")
    connection = pika.BlockingConnection(parameters(listener))
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    publish_numbers(channel, "q", 100, properties=PERSISTENT)
    assert channel.queue_declare("q", passive=True).method.message_count == 100
    closer = threading.Thread(target=store.close)
    closer.start()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as ended:
        connection.process_data_events(time_limit=30)
    assert ended.value.reply_code == 320
    closer.join()
    assert listener.closed
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, port_of(listener)))
    with pyqstore.open(path) as again:
        assert again.queue_status("q")["messages_ready"] == 100


def test_a_listener_closes_alone(store: pyqstore.Store, channel: pyqstore.Channel) -> None:
    host = own_host()
    with store.listen(f"{host}:0") as listener:
        assert host in repr(listener)
        with connected(listener):
            assert listener.stats()["connections"] == 1
    listener.close()
    assert "closed" in repr(listener)
    channel.queue_declare("q")
    with store.listen(listener.address) as again, connected(again):
        pass


def test_a_closed_store_does_not_listen(path: Path) -> None:
    store = pyqstore.open(path)
    store.close()
    with pytest.raises(pyqstore.StoreClosed):
        store.listen("127.0.0.1:0")


def test_a_store_opened_for_reading_only_does_not_listen(path: Path) -> None:
    pyqstore.open(path).close()
    with (
        pyqstore.open(path, read_only=True) as store,
        pytest.raises(ValueError, match="for reading only"),
    ):
        store.listen("127.0.0.1:0")


def test_a_listener_that_is_not_closed_ends_with_the_interpreter(path: Path) -> None:
    done = run_python(
        "import sys, pyqstore\n"
        "store = pyqstore.open(sys.argv[1])\n"
        "print(store.listen('127.0.0.1:0').address)",
        path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("127.0.0.1:")


def test_a_forked_child_keeps_neither_address_nor_connections(path: Path) -> None:
    store, host = pyqstore.open(path), own_host()
    listener = store.listen(f"{host}:0")
    connection = pika.BlockingConnection(parameters(listener))
    said, says = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(said)
        try:
            listener.stats()
            store.listen("127.0.0.1:0")
        except pyqstore.ForkedStore:
            os.write(says, b"forked")
        time.sleep(600)
    try:
        os.close(says)
        assert os.read(said, 6) == b"forked"
        # Through the parent alone: the child would keep the socket open otherwise.
        listener.close(timeout=0)
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            connection.process_data_events(time_limit=30)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((host, port_of(listener)))
        store.listen(listener.address)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(said)
        store.close()


@pytest.mark.parametrize("name", ["heartbeat", "connections_max", "channel_max", "frame_max"])
def test_numbers_that_are_no_int_are_refused(store: pyqstore.Store, name: str) -> None:
    for value in (Decimal("NaN"), 60.0, "60", None):
        with pytest.raises(TypeError, match=f"{name} must be int"):
            store.listen("127.0.0.1:0", **{name: value})

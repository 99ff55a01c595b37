"""pyqstore.compat.pika on stores of this process: where they are, who opens and closes them, and
what it does otherwise than pika."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyqstore
import pyqstore.compat.pika as compat
from pyqstore.compat import attach, share, sharing


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[compat.BlockingConnection]:
    url = f"pyqstore://{tmp_path}/store"
    with compat.BlockingConnection(compat.URLParameters(url)) as opened:
        yield opened


def test_the_last_connection_closes_the_store_when_there_are_several(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "store"
    first, second = (
        compat.BlockingConnection(compat.ConnectionParameters(str(path))) for _ in range(2)
    )
    first.channel().queue_declare("q")
    first.close()
    assert second.channel().queue_declare("q", passive=True).method.queue == "q"
    with pytest.raises(pyqstore.StoreLocked):
        pyqstore.open(path)
    second.close()
    pyqstore.open(path).close()


def test_localhost_is_the_store_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYQSTORE_PATH", str(tmp_path / "named"))
    for parameters in (
        compat.ConnectionParameters("localhost"),
        compat.URLParameters("amqp://guest:guest@localhost:5672/%2F?heartbeat=30"),
        None,
    ):
        with compat.BlockingConnection(parameters):
            assert (tmp_path / "named" / "MANIFEST").exists()
    monkeypatch.delenv("PYQSTORE_PATH")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with compat.BlockingConnection():
        assert (tmp_path / "data/pyqstore/default/MANIFEST").exists()


def test_connecting_says_why_when_it_cannot(tmp_path: Path) -> None:
    with pytest.raises(compat.exceptions.AMQPConnectionError, match="another machine"):
        compat.BlockingConnection(compat.ConnectionParameters("rabbit.example.com"))
    with pytest.raises(compat.exceptions.ConnectionClosedByBroker, match="vhost") as refused:
        compat.BlockingConnection(compat.ConnectionParameters(str(tmp_path), virtual_host="v"))
    assert refused.value.reply_code == 530
    (tmp_path / "other").write_text("not a store's")
    with pytest.raises(compat.exceptions.AMQPConnectionError):
        compat.BlockingConnection(compat.ConnectionParameters(str(tmp_path)))
    for url in ("http://localhost", "pyqstore://host/path", "pyqstore:///"):
        with pytest.raises(ValueError):
            compat.URLParameters(url)


def test_the_next_parameters_are_tried_when_the_first_lead_nowhere(tmp_path: Path) -> None:
    places = [compat.ConnectionParameters(host) for host in ("elsewhere", str(tmp_path / "here"))]
    with compat.BlockingConnection(places) as connection:
        assert connection.is_open
    with pytest.raises(ValueError):
        compat.BlockingConnection([])


def test_a_store_that_the_program_opened_itself_is_used_when_it_is_shared(tmp_path: Path) -> None:
    parameters = compat.ConnectionParameters(str(tmp_path / "store"))
    with pyqstore.open(tmp_path / "store") as store:
        with pytest.raises(compat.exceptions.AMQPConnectionError, match="share"):
            compat.BlockingConnection(parameters)
        with share(store), compat.BlockingConnection(parameters) as connection:
            connection.channel().queue_declare("q")
            assert store.queues() == ["q"]
        assert not store.closed


def test_consuming_ends_when_another_thread_closes_the_store(tmp_path: Path) -> None:
    store = pyqstore.open(tmp_path / "store")
    with share(store):
        connection = compat.BlockingConnection(compat.ConnectionParameters(str(store.path)))
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_consume("q", print)
        closing = threading.Thread(target=store.close)
        connection.call_later(0, closing.start)  # once it consumes
        ends = (compat.exceptions.StreamLostError, compat.exceptions.ConnectionWrongStateError)
        with pytest.raises(ends):  # while it waits, or when it is about to
            channel.start_consuming()
        closing.join()
    assert connection.is_closed


def test_a_callback_s_exception_comes_out_of_start_consuming(
    connection: compat.BlockingConnection,
) -> None:
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"1")

    def fail(*_: object) -> None:
        raise RuntimeError("mine")

    channel.basic_consume("q", fail)
    with pytest.raises(RuntimeError, match="mine"):
        channel.start_consuming()
    channel.close()
    got = connection.channel().basic_get("q")
    assert got[0] is not None
    assert got[0].redelivered


def test_messages_of_consume_are_fetched_one_by_one_and_go_back_when_it_ends(
    connection: compat.BlockingConnection,
) -> None:
    channel = connection.channel()
    channel.queue_declare("q")
    for number in range(3):
        channel.basic_publish("", "q", str(number))
    told_first = next(channel.consume("q"))
    assert told_first[2] == b"0"
    assert channel.queue_declare("q", passive=True).method.message_count == 2
    connection.process_data_events()
    assert channel.get_waiting_message_count() == 0
    channel.cancel()
    assert channel.queue_declare("q", passive=True).method.message_count == 2


def test_a_quorum_queue_becomes_a_durable_classic_one(
    connection: compat.BlockingConnection,
) -> None:
    channel = connection.channel()
    channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_declare("q", durable=True)


def test_a_quorum_queue_keeps_all_messages(tmp_path: Path) -> None:
    parameters = compat.ConnectionParameters(str(tmp_path / "store"))
    quorum = {"x-queue-type": "quorum"}
    for expected in (0, 1):
        with compat.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            declared = channel.queue_declare("q", durable=True, arguments=quorum)
            assert declared.method.message_count == expected
            channel.basic_publish("", "q", b"1")


def test_a_confirmed_message_is_there_when_the_store_is_opened_again(tmp_path: Path) -> None:
    parameters = compat.ConnectionParameters(str(tmp_path / "store"))
    for expected in (0, 1):
        with compat.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            declared = channel.queue_declare("q", durable=True)
            assert declared.method.message_count == expected
            properties = compat.BasicProperties(delivery_mode=compat.DeliveryMode.Persistent)
            channel.basic_publish("", "q", b"1", properties)


def test_connection_that_the_collector_ends_holds_up_no_store_that_is_being_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector may run in a thread that the closing store waits for."""
    forgotten = compat.BlockingConnection(compat.ConnectionParameters(str(tmp_path / "forgotten")))
    connection = compat.BlockingConnection(compat.ConnectionParameters(str(tmp_path / "store")))
    close = pyqstore.Store.close

    def collecting(store: pyqstore.Store) -> None:
        thread = threading.Thread(target=forgotten.__del__, daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        monkeypatch.undo()
        close(store)

    monkeypatch.setattr(pyqstore.Store, "close", collecting)
    connection.close()
    for name in ("forgotten", "store"):
        pyqstore.open(tmp_path / name).close()


def test_store_that_goes_by_itself_may_let_another_go_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a finalizer or a handler of signals does, in the thread that is closing a store."""
    first, second = (attach(tmp_path / name) for name in ("first", "second"))
    close = pyqstore.Store.close

    def closing(store: pyqstore.Store) -> None:
        monkeypatch.undo()
        second.close()
        close(store)

    monkeypatch.setattr(pyqstore.Store, "close", closing)
    thread = threading.Thread(target=first.drop, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    for name in ("first", "second"):
        pyqstore.open(tmp_path / name).close()


def test_handler_of_signals_connects_while_its_thread_opens_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = sharing.open
    inner = []

    def opening(path: str, **options: object) -> pyqstore.Store:
        monkeypatch.undo()
        inner.append(attach(tmp_path / "inner"))  # where the handler runs
        return opened(path, **options)

    monkeypatch.setattr(sharing, "open", opening)
    outer: list[sharing.Attachment] = []
    thread = threading.Thread(target=lambda: outer.append(attach(tmp_path / "outer")), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    for each in (*outer, *inner):
        each.close()
    for name in ("outer", "inner"):
        pyqstore.open(tmp_path / name).close()

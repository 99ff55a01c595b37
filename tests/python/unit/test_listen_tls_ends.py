"""How connections over TLS end, and listeners: what was sent before arrives; nothing is left."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore.serve import tls, tls_ends
from pyqstore.serve.tls import Bridge

from ..support import own_host, wait_until
from .test_listen_tls import START, bridged, client_context, context_of, dialed, place

LAST = b"last words" * 1000


class Behind:
    """A bridge, in front of sockets that the test has."""

    def __init__(self, certificates: Path, **options: Any) -> None:
        self.adopted: list[socket.socket] = []
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = listening.getsockname()
        self.bridge = Bridge(self._adopt, listening, context_of(certificates), **options)
        self._context = client_context(certificates)

    def _adopt(self, fd: int, *_: object) -> None:
        server = socket.socket(fileno=fd)
        server.settimeout(60)
        self.adopted.append(server)

    def client(self) -> tuple[Client, socket.socket]:
        """A client, and the server's half of its pair."""
        count = len(self.adopted)
        client = Client(self.address, self._context)
        wait_until(lambda: len(self.adopted) > count, 60)
        return client, self.adopted[-1]

    def outer(self) -> tls_ends.Outer:
        (found,) = [end for end in self.bridge._ends if isinstance(end, tls_ends.Outer)]
        return found

    def is_empty(self) -> bool:
        return not self.bridge._ends


class Client:
    """TLS whose bytes the test sends as it likes."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext) -> None:
        self.plain = socket.create_connection(address, timeout=60)
        self._coming, self._going = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._coming, self._going, server_hostname="localhost")
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.flush()
                self._coming.write(self.plain.recv(65_536))
        self.flush()

    def flush(self) -> None:
        self.plain.sendall(self._going.read())

    def say_end(self) -> None:
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()

    def reset(self) -> None:
        self.plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.plain.close()


@contextmanager
def behind(certificates: Path, **options: Any) -> Iterator[Behind]:
    it = Behind(certificates, **options)
    try:
        yield it
    finally:
        it.bridge.accept_no_more()
        for each in it.adopted:
            each.close()
        it.bridge.end()


def received(own: socket.socket) -> bytes:
    got = b""
    while data := own.recv(65_536):
        got += data
    return got


def events_of(own: socket.socket) -> int:
    poll = select.poll()
    poll.register(own, select.POLLRDHUP)
    return next((events for _, events in poll.poll(0)), 0)


# ---- connections ----


def test_what_comes_together_with_the_end_is_not_lost(certificates: Path) -> None:
    with behind(certificates) as it:
        client, server = it.client()
        client.tls.write(LAST)
        client.say_end()
        client.flush()
        assert received(server) == LAST
        server.close()
        wait_until(it.is_empty, 60)
        client.plain.close()


@pytest.mark.parametrize("how", ["says so", "closes", "resets"])
def test_a_server_that_reads_late_reads_all_of_a_client_that_has_gone(
    certificates: Path, how: str
) -> None:
    """A pair that is closed on one side hangs up at the other, which need not read then."""
    with behind(certificates) as it:
        client, server = it.client()
        client.tls.write(LAST)
        client.flush()
        wait_until(lambda: len(server.recv(len(LAST), socket.MSG_PEEK)) == len(LAST), 60)
        if how == "says so":
            client.say_end()
            client.flush()
        elif how == "closes":
            client.plain.close()
        else:
            client.reset()
        wait_until(lambda: events_of(server) != 0, 60)
        assert not events_of(server) & select.POLLHUP
        assert received(server) == LAST
        server.close()
        wait_until(it.is_empty, 60)
        client.plain.close()


def test_a_server_that_does_not_close_after_its_client_is_cut_off(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_ends, "_LAST_READ_S", 0.1)
    with behind(certificates) as it:
        client, server = it.client()
        client.plain.close()
        wait_until(it.is_empty, 60)
        assert events_of(server) & select.POLLHUP


@pytest.mark.parametrize("how", ["says so", "closes", "resets"])
def test_a_server_that_writes_without_end_is_stopped_when_its_client_goes(
    certificates: Path, how: str
) -> None:
    """The bridge reads what is queued and no more: others are served."""
    with behind(certificates) as it:
        client, server = it.client()
        errors: list[OSError] = []

        def write() -> None:
            try:
                server.settimeout(None)
                server.sendall(bytes(1 << 30))
            except OSError as error:
                errors.append(error)

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        wait_until(lambda: not it.outer().other.transport.is_reading(), 60)  # type: ignore[union-attr]
        if how == "says so":
            client.say_end()
            client.flush()
            client.plain.close()
        elif how == "closes":
            client.plain.close()
        else:
            client.reset()
        writer.join(120)
        assert [type(error) for error in errors] == [BrokenPipeError]
        server.close()
        other, _ = it.client()
        other.plain.close()


@pytest.mark.parametrize("how", ["client goes", "is cut off"])
def test_an_end_that_closes_does_not_read_on_as_fast_as_its_server_writes(
    certificates: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with behind(certificates) as it:
        client, server = it.client()
        server.setblocking(False)
        is_over = threading.Event()
        outer = it.outer()

        def write_more(_: memoryview) -> None:
            if not is_over.is_set():
                server.send(bytes(1000))

        wait_until(lambda: outer.other is not None)
        monkeypatch.setattr(outer, "write", write_more)
        server.send(bytes(1000))
        try:
            if how == "client goes":
                client.reset()
            else:
                assert outer.other is not None
                it.bridge._loop.call_soon_threadsafe(outer.other.abort)
            wait_until(lambda: events_of(server) & select.POLLHUP != 0 or is_refused(server), 60)
        finally:
            is_over.set()
        client.plain.close()


def is_refused(own: socket.socket) -> bool:
    try:
        return own.send(b"x") == 0
    except BlockingIOError:
        return False
    except BrokenPipeError:
        return True


def test_pauses_start_no_more_timers_than_one(certificates: Path) -> None:
    with behind(certificates) as it:
        client, _ = it.client()
        outer, loop = it.outer(), it.bridge._loop
        counts: list[int] = []
        done = threading.Event()

        def looks() -> int:
            timers = loop._scheduled  # type: ignore[attr-defined]
            mine = [timer for timer in timers if timer._callback == outer._look_for_server]
            return sum(not timer.cancelled() for timer in mine)

        def pause_often() -> None:
            for _ in range(10):
                outer.pause_writing()
                outer.resume_writing()
                outer.pause_writing()
            counts.append(looks())
            outer.resume_writing()
            counts.append(looks())
            done.set()

        wait_until(lambda: outer.other is not None)
        loop.call_soon_threadsafe(pause_often)
        assert done.wait(60)
        assert counts == [1, 0]
        client.plain.close()


def test_a_client_that_reads_late_leaves_no_timer_that_fails(
    certificates: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its end is closed with bytes to send, which go before the time for them is over."""
    monkeypatch.setattr(tls_ends, "SHUTDOWN_S", 1.0)
    with caplog.at_level(logging.ERROR, "pyqstore"), behind(certificates) as it:
        client, server = it.client()
        server.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while True:
                server.sendall(b"x" * 65_536)
        outer = it.outer()
        client.plain.shutdown(socket.SHUT_WR)
        wait_until(outer.transport.is_closing, 60)
        with contextlib.suppress(ConnectionError):
            received(client.plain)
        server.close()
        time.sleep(1.5)  # the timer's
        client.plain.close()
    assert caplog.text == ""


# ---- handshakes ----


def test_the_oldest_handshake_gives_its_descriptor_back_at_once(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        behind(certificates, handshake_s=3600.0, handshakes_max=5) as it,
        contextlib.ExitStack() as stack,
        monkeypatch.context() as patch,
    ):
        patch.setattr(tls_ends, "SHUTDOWN_S", 3600.0)  # nothing ends by waiting
        for _ in range(20):
            stack.enter_context(socket.create_connection(it.address, timeout=60))
        wait_until(lambda: it.bridge.handshakes_failed == 15, 60)
        wait_until(lambda: len(it.bridge._ends) == 5, 60)


def test_sockets_of_failed_handshakes_are_bounded(
    certificates: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bound = 3 + tls._ACCEPTED_AT_ONCE
    with behind(certificates, connections_max=1, handshakes_max=2, handshake_s=3600.0) as it:
        with monkeypatch.context() as patch, contextlib.ExitStack() as stack:
            patch.setattr(tls_ends, "SHUTDOWN_S", 3600.0)
            for number in range(bound + 20):
                plain = stack.enter_context(socket.create_connection(it.address, timeout=60))
                plain.sendall(b"no TLS at all\r\n")
                if number < bound:
                    wait_until(lambda: it.bridge.handshakes_failed == number + 1, 60)  # noqa: B023
            wait_until(lambda: "too many that have not closed" in caplog.text, 60)
            assert it.bridge.handshakes_failed == bound
            assert len(it.bridge._ends) == bound
        other, _ = it.client()  # there is room again
        other.plain.close()


# ---- listeners ----


@pytest.mark.parametrize("step", ["accept_no_more", "end"])
def test_ctrl_c_while_a_listener_closes_does_not_keep_the_next_close_waiting(
    store: pyqstore.Store, certificates: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    listener, bridge = bridged(store, certificates, own_host())
    waited = getattr(bridge, step)

    def interrupted() -> None:
        waited()
        raise KeyboardInterrupt

    with dialed(listener, client_context(certificates)) as client:
        client.sendall(START)
        assert client.recv(1) == b"\1"
        monkeypatch.setattr(bridge, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            listener.close(timeout=0)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while client.recv(1000):
                pass
    again = threading.Thread(target=listener.close, daemon=True)
    again.start()
    again.join(60)
    assert not again.is_alive()
    assert not bridge._thread.is_alive()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(place(listener))


def test_a_connection_that_a_closed_listener_turns_away_leaves_no_descriptor(
    store: pyqstore.Store, certificates: Path
) -> None:
    listener = store.listen("127.0.0.1:0", tls=context_of(certificates))
    for user, error in (("a\0b", ValueError), ("\ud800", ValueError), ("", pyqstore.StoreClosed)):
        if error is pyqstore.StoreClosed:
            listener.close()
        ours, servers = socket.socketpair()
        with ours:
            ours.settimeout(60)
            with pytest.raises(error):
                listener._server._adopt(servers.detach(), "peer", user, False)
            assert ours.recv(1) == b""


def test_a_store_that_closes_while_a_listener_over_tls_begins_leaves_no_address_taken(
    path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = pyqstore.open(path)
    late: list[Bridge] = []

    def make(*arguments: Any, **options: Any) -> Bridge:
        store.close()
        late.append(Bridge(*arguments, **options))
        return late[0]

    monkeypatch.setattr("pyqstore.serve.tls.Bridge", make)
    with pytest.raises(pyqstore.StoreClosed):
        store.listen("127.0.0.1:0", tls=context_of(certificates))
    assert not late[0]._thread.is_alive()
    assert late[0]._listening.fileno() == -1

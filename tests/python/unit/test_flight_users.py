"""Users of a store who come in through Arrow Flight: their passwords, and tokens."""

import hashlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyqstore
import pyqstore.flight
from pyqstore.flight import FlightListener
from pyqstore.serve.passwords import hashed
from pyqstore.serve.user_file import changed_users
from pyqstore.serve.user_list import Permission, User

from ..support import wait_until

SECRET = hashed("secret")  # that takes a while
ALL = {"/": Permission()}


def put(directory: Path, **users: User) -> None:
    with changed_users(directory, create=True) as known:
        known.update(users)


@pytest.fixture
def server(store: pyqstore.Store, path: Path) -> Iterator[FlightListener]:
    put(path, ann=User(SECRET, permissions=ALL))
    with pyqstore.flight.serve(store) as server:
        yield server


def refused(address: str, **who: str) -> None:
    with pytest.raises(pyqstore.AccessRefused):
        pyqstore.connect(address, timeout=300, **who)  # type: ignore[arg-type]


def test_wrong_passwords_of_many_callers_at_once_take_the_memory_of_two(
    server: FlightListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each took 32 MiB, all at once; and who had come in before does not wait behind them."""
    real, lock, goes_on = hashlib.scrypt, threading.Lock(), threading.Event()
    now = most = 0

    def scrypt(*arguments: Any, **more: Any) -> bytes:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        assert goes_on.wait(300)
        with lock:
            now -= 1
        return real(*arguments, **more)

    pyqstore.connect(server.address, user="ann", password="secret").close()
    monkeypatch.setattr(hashlib, "scrypt", scrypt)
    wrong = {"user": "ann", "password": "wrong"}
    threads = [
        threading.Thread(target=refused, args=(server.address,), kwargs=wrong) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: now == 2)
        with pyqstore.connect(server.address, user="ann", password="secret", timeout=60) as client:
            assert client.queues() == []
    finally:
        goes_on.set()
        for thread in threads:
            thread.join()
    assert most == 2


def test_a_login_that_is_refused_is_in_the_log_without_its_password(
    server: FlightListener, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "pyqstore"):
        refused(server.address, user="ann", password="nearly-secret")
    assert "Flight: a login as 'ann' was refused" in caplog.text
    assert "nearly" not in caplog.text

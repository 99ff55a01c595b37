"""Addresses of shovels: what is wrong is told, and passwords are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import pyqstore
from pyqstore.shovelling.addresses import AmqpPlace, place_of

from ..shovelling import bodies, put
from ..support import run_command


@pytest.mark.parametrize(
    "address",
    [
        "amqp://me:pa#secret@host?queue=q",
        "amqp://me:pa?secret@host?queue=q",
        "amqp://me:pa/secret@host?queue=q",
        "amqp://me:12#secret@host?queue=q",
        "amqp://me:12?secret@host?queue=q",
        "amqp://me:12/secret@host?queue=q",
        "amqp://me:12?queue=q&secret=w@host",
        "amqp://me:[secret@host?queue=q",
        "amqp://me:secret\u2100@host?queue=q",
        "amqp:/me:secret@host?queue=q",
        "amqp:me:se#secret@host?queue=q",
        "amqp://me:secret@host?queue=q&key=k",
        "amqps://me:sec:secret@host:port?queue=q",
        "http://me:secret@host?queue=q",
        "ampq:/me:secret@host?queue=q",
        "ampq:me:secret@host?queue=q",
        "me:secret@host",
    ],
)
def test_an_error_shows_no_part_of_a_password(address: str) -> None:
    for is_target in (False, True):
        with pytest.raises(ValueError, match=r"^(source|target) '(http|amqps?|ampq|me):") as caught:
            place_of(address, is_target=is_target)
        assert "secret" not in str(caught.value)
        assert "12" not in str(caught.value)
        assert "pa" not in str(caught.value).replace("password", "")


def test_it_is_told_how_to_encode_a_password() -> None:
    for address in (
        "amqp://me:12?x@host?queue=q",
        "amqp://me:1#x@host",
        "amqp://me:12/x@h?queue=q",
    ):
        with pytest.raises(ValueError, match=r"encode .*@ as %40.*# as %23"):
            place_of(address, is_target=False)
    place = place_of("amqp://me:12%3Fx%40@host?queue=q", is_target=False)
    assert isinstance(place, AmqpPlace)
    assert (place.url, place.shown) == ("amqp://me:12%3Fx%40@host", "amqp://host:5672?queue=q")


def test_a_name_that_amqp_cannot_say_is_told() -> None:
    with pytest.raises(ValueError, match="queue= has more than 255 bytes"):
        place_of(f"amqp://host?queue={'q' * 256}", is_target=True)


def test_the_command_takes_addresses_from_the_environment(tmp_path: Path) -> None:
    """Where other users of the machine do not see them."""
    with pyqstore.open(tmp_path / "one") as store:
        put(store, "a", [b"body"])
    with pyqstore.open(tmp_path / "two") as store:
        store.queue("b")
        address = store.listen("127.0.0.1:0").address
        addresses = {
            "PYQSTORE_SHOVEL_FROM": f"{tmp_path}/one#a",
            "PYQSTORE_SHOVEL_TO": f"amqp://guest:guest@{address}?queue=b",
        }
        done = run_command("shovel", "--idle", 0.3, env=os.environ | addresses)
        assert (done.returncode, done.stderr) == (0, "")
        assert bodies(store, "b") == [b"body"]


def test_the_command_tells_troubles_once(tmp_path: Path) -> None:
    """pika's log says nothing beside it."""
    with pyqstore.open(tmp_path / "one") as store:
        put(store, "a", [b"body"])
    with pyqstore.open(tmp_path / "two") as store:
        address = store.listen("127.0.0.1:0").address
        to = f"amqp://guest:secret@{address}?queue=b"
        done = run_command("shovel", "--from", f"{tmp_path}/one#a", "--to", to)
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1
    assert "look at user, password" in done.stderr
    assert "secret" not in done.stderr

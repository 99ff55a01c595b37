"""A queue or a stream is deleted while somebody waits for it: each wait of each face is told at
once, with its name."""

import threading
from collections.abc import Iterator

import pytest

import pyqstore

from .faces import ANOTHER_WAIT, WAITS, Place, Wait, waits_by_introspection

PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def shared() -> Iterator[pyqstore.Store]:
    with pyqstore.open(":memory:") as store:
        yield store


def test_every_wait_is_in_the_table() -> None:
    assert waits_by_introspection() == {wait.verb for wait in WAITS} | set(ANOTHER_WAIT)


@pytest.mark.parametrize("wait", WAITS, ids=[wait.name for wait in WAITS])
def test_a_wait_is_told_when_what_it_waits_for_is_deleted(
    shared: pyqstore.Store, wait: Wait
) -> None:
    name = f"gone {wait.name}"
    told: list[str] = []
    ready = threading.Event()
    what = wait.declare(shared, name)

    def run() -> None:
        place = Place(shared, name, lambda heard: told.append(str(heard)), ready.set)
        try:
            wait.run(place)
            told.extend(["ended"] if wait.ends and not told else [])
        except pyqstore.Error as error:
            told.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(PATIENCE_S), told
    what.delete()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), f"{wait.name} waits for ever"
    last = told[-1]
    assert name in last or (wait.verb.endswith("hannel.consume") and last == "ended")

"""A listener for clients that other projects wrote, and a RabbitMQ to compare it with."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

import pyqstore

from ..differential.conftest import broker as broker
from .fetching import ERRORS

T = TypeVar("T")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[pyqstore.Store]:
    with pyqstore.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def port(store: pyqstore.Store) -> int:
    listener = store.listen("127.0.0.1:0")
    return int(listener.address.rpartition(":")[2])


@pytest.fixture
def fetched() -> Callable[[Callable[[], T]], T]:
    """What a function fetches; what is missing skips the test, or fails it where all is
    required."""

    def fetch(get: Callable[[], T]) -> T:
        try:
            return get()
        except ERRORS as error:
            (pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip)(str(error))

    return fetch

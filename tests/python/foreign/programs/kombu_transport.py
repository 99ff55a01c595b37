"""kombu's common integration tests over pyqstore's transport: stands in kombu's t/integration.

PYQSTORE_STORE is the absolute path of a store.
"""

from __future__ import annotations

import os

import kombu
import pytest

import pyqstore.compat.kombu  # noqa: F401 - registers the transport

from .common import (
    BaseEventLoop,
    BaseExchangeTypes,
    BaseFailover,
    BaseMessage,
    BasePriority,
    BaseTimeToLive,
    BasicFunctionality,
)

PATH = os.environ["PYQSTORE_STORE"]
NOWHERE = "/proc/no/store"


@pytest.fixture
def invalid_connection():
    return kombu.Connection(f"pyqstore:///{NOWHERE}")


@pytest.fixture
def connection():
    return kombu.Connection(f"pyqstore:///{PATH}")


@pytest.fixture
def failover_connection():
    """The tests tell the URLs apart by their ports, which mean nothing."""
    return kombu.Connection(f"pyqstore://localhost:1/{NOWHERE};pyqstore://localhost:2/{PATH}")


class test_BasicFunctionality(BasicFunctionality):  # noqa: N801 - as kombu names them
    pass


class test_ExchangeTypes(BaseExchangeTypes):  # noqa: N801 - as kombu names them
    pass


class test_TimeToLive(BaseTimeToLive):  # noqa: N801 - as kombu names them
    pass


class test_Priority(BasePriority):  # noqa: N801 - as kombu names them
    pass


class test_Failover(BaseFailover):  # noqa: N801 - as kombu names them
    pass


class test_Message(BaseMessage):  # noqa: N801 - as kombu names them
    pass


class test_EventLoop(BaseEventLoop):  # noqa: N801 - as kombu names them
    pass

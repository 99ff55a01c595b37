"""Channels that share a connection, on a store and on RabbitMQ: whose an exclusive queue is, and
what an error closes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
import pytest

import pyqstore

from .broker import Broker

PATIENCE_SECONDS = 10
LOCKED, NOT_FOUND = 405, 404

ERRORS: dict[int, Callable[[Any], object]] = {
    403: lambda channel: channel.exchange_declare("amq.own", "direct"),
    404: lambda channel: channel.queue_declare("nowhere", passive=True),
    406: lambda channel: channel.tx_commit(),
    503: lambda channel: channel.exchange_declare("e", "nonsense"),
    540: lambda channel: channel.basic_recover(False),
}


def code_of(act: Callable[[Any], object], channel: Any) -> int | None:
    try:
        act(channel)
    except pyqstore.ChannelError as error:
        return error.reply_code
    except (
        pika.exceptions.ChannelClosedByBroker,
        pika.exceptions.ConnectionClosedByBroker,
    ) as error:
        return int(error.reply_code)
    return None


def ask(channel: Any) -> object:
    return channel.queue_declare("shared", passive=True)


def outcome(
    act: Callable[[Any], object], connect: Callable[[], Any], is_open: Callable[[Any], bool]
) -> dict[str, object]:
    connection = connect()
    one, other = connection.channel(), connection.channel()
    other.queue_declare("shared", exclusive=True)
    seen: dict[str, object] = {
        "to its connection": code_of(ask, one),
        "to another one": code_of(ask, connect().channel()),
        "error": code_of(act, one),
        "open": (is_open(one), is_open(other)),
    }
    is_gone = not is_open(other)
    until = time.monotonic() + PATIENCE_SECONDS
    answer = code_of(ask, connect().channel())
    while is_gone and answer == LOCKED and time.monotonic() < until:
        answer = code_of(ask, connect().channel())
    return seen | {"afterwards": answer}


@pytest.mark.parametrize("code", ERRORS)
def test_error_closes_the_same_channels(code: int, broker: Broker, tmp_path: Path) -> None:
    connections: list[Any] = []

    def connect_to(open_one: Callable[[], Any]) -> Any:
        connections.append(open_one())
        return connections[-1]

    with pyqstore.open(tmp_path / "store") as store:
        told = outcome(
            ERRORS[code], lambda: connect_to(store.connection), lambda channel: not channel.closed
        )
        for connection in connections:
            connection.close()
    connections.clear()
    heard = outcome(
        ERRORS[code],
        lambda: connect_to(lambda: pika.BlockingConnection(broker.parameters())),
        lambda channel: bool(channel.is_open),
    )
    for connection in connections:
        with suppress(pika.exceptions.AMQPError):
            connection.close()
    assert told == heard
    assert told["error"] == code
    assert told["afterwards"] == (NOT_FOUND if code >= 500 else LOCKED)

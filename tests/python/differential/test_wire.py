"""Frames by hand: a listener answers as RabbitMQ 3.10 does, and RabbitMQ as it is written down.

``wire.json`` has RabbitMQ's answers; QS_WIRE_ANSWERS=write writes them anew.  All cases are played
at once, each on a connection of its own, since many of them end in silence.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pika
import pytest

import pyqstore

from .broker import Broker
from .wire import CLOSED, SILENCE, Wire
from .wire_cases import CASES, LEFT

ANSWERS = Path(__file__).with_name("wire.json")
WRITES = os.environ.get("QS_WIRE_ANSWERS") == "write"
PATIENCE_SECONDS = 6.0  # a server that says nothing more to a client closes after three
Answers = dict[str, list[str]]


def play(port: int) -> Answers:
    def one(name: str) -> list[str]:
        wire = Wire(port, PATIENCE_SECONDS)
        try:
            return CASES[name](wire)
        finally:
            wire.close()

    with ThreadPoolExecutor(len(CASES)) as pool:
        return dict(zip(CASES, pool.map(one, CASES), strict=True))


def written() -> Answers:
    return dict(json.loads(ANSWERS.read_text()))


def write(answers: Mapping[str, list[str]]) -> None:
    lines = [f"{json.dumps(name)}: {json.dumps(said)}" for name, said in answers.items()]
    ANSWERS.write_text("{" + ",\n".join(lines) + "}\n")


@pytest.mark.slow
def test_rabbitmq_answers_on_the_wire_as_it_is_written_down(broker: Broker) -> None:
    heard = play(broker.port)
    with pika.BlockingConnection(broker.parameters()) as connection:
        connection.channel().queue_delete(LEFT)
    if WRITES:
        write(heard)
    assert heard == written()


# ---- a listener ----

_NO_LIMIT = "0 is no limit, as the specification has it"
_A_CRASH = "RabbitMQ's process crashes, and its socket with it: here it is told what is wrong"
_SYNTAX = "RabbitMQ has an internal error, 541: here it is 502, which says what is wrong"
_DEEP = "tables are at most 128 deep"
_AT_ONCE = "RabbitMQ waits for all of the body before it refuses it"
_WORDS = "the engine's words"
KNOWN = {
    "frame_max 0": _NO_LIMIT,
    "channel_max 0": _NO_LIMIT,
    "unknown class": _A_CRASH,
    "unknown method": _A_CRASH,
    "arguments: a bad table": _A_CRASH,
    "properties cut short": _SYNTAX,
    "properties with bytes behind them": _SYNTAX,
    "properties with more flags": _SYNTAX,
    "properties with a bad table": _SYNTAX,
    "properties with a deep table": _DEEP,
    "arguments: a deep table": _DEEP,
    "body of 128 MiB and a byte": _AT_ONCE,
    "body of 2**63 bytes": _AT_ONCE,
    "x-message-ttl -1": _WORDS,
    "x-queue-type nix": _WORDS,
}
"""Why; docs/AMQP.md has them, too."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    with pyqstore.open(tmp_path_factory.mktemp("wire") / "store") as store:
        listener = store.listen("127.0.0.1:0")
        yield play(int(listener.address.rpartition(":")[2]))


@pytest.mark.parametrize("name", [each for each in CASES if each not in KNOWN])
def test_a_listener_answers_on_the_wire_as_rabbitmq_does(name: str, told: Answers) -> None:
    assert told[name] == written()[name]


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_difference_on_the_wire_is_still_one(name: str, told: Answers) -> None:
    assert told[name] != written()[name]


def test_an_error_in_other_words_has_the_same_code(told: Answers) -> None:
    for name in (name for name, why in KNOWN.items() if why == _WORDS):
        assert told[name][0][:17] == written()[name][0][:17] == "channel.close 406"


def test_what_a_refused_client_hears_ends_with_the_connection(told: Answers) -> None:
    """Of a server that forgets to close it the client would hear silence."""
    refused = [said for said in told.values() if said[0].startswith("connection.close")]
    assert len(refused) > 20
    assert all(SILENCE not in said[1:] for said in refused)
    assert sum(CLOSED in said for said in refused) > 10

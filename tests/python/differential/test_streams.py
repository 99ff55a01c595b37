"""Scripts about streams: a store answers as RabbitMQ 3.10 does, and RabbitMQ as it is written down.

``streams.json`` has RabbitMQ's answers; QS_STREAM_ANSWERS=write writes them anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from .broker import Broker
from .broker_side import BrokerSide
from .compare import same_text
from .sides import Failure
from .store_side import StoreSide
from .streams import ANSWERS, CHANNELS, PATIENCE_SECONDS, play, scripts

SCRIPTS = scripts()
WRITES = os.environ.get("QS_STREAM_ANSWERS") == "write"


def written() -> dict[str, Any]:
    return dict(json.loads(ANSWERS.read_text())) if ANSWERS.exists() else {}


def write(name: str, answers: list[Any]) -> None:
    known = written() | {name: answers}
    ordered = {each: known[each] for each in SCRIPTS if each in known}
    lines = [
        f"{json.dumps(each)}: [\n" + ",\n".join(map(json.dumps, told)) + "]"
        for each, told in ordered.items()
    ]
    ANSWERS.write_text("{" + ",\n".join(lines) + "}\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_rabbitmq_answers_as_it_is_written_down(name: str, broker: Broker) -> None:
    side = BrokerSide(broker, CHANNELS)
    try:
        heard = play(side, SCRIPTS[name], None if WRITES else written()[name])
    finally:
        side.clear(["s", "q"], ["e1"], PATIENCE_SECONDS)
        side.close()
    if WRITES:
        write(name, heard)
    assert heard == written()[name]


# ---- a store ----

INTERNAL_ERROR = 541
LOCATOR, CLUSTER = "declare x-queue-leader-locator=", "declare x-initial-cluster-size="
KNOWN = {
    "declare x-stream-max-segment-size-bytes=0": "a segment holds a block",
    "declare x-max-length-bytes=0": "refused: it could be taken for no limit",
    **{f"{LOCATOR}{value!r}": "there are no other machines"
       for value in ("client-local", "random", "least-leaders")},
    "declare again with another x-queue-leader-locator": "there are no other machines",
    **{f"{CLUSTER}{value!r}": "there are no other machines" for value in (0, -1, "1")},
    "publish with CC": "a stream keeps headers that are arrays or tables; RabbitMQ 3.10 drops them",
    "declare a classic queue with x-initial-cluster-size": "there are no other machines",
}  # fmt: skip
"""Why; docs/SEMANTICS.md has them, too."""


def failure(answer: object) -> Failure | None:
    if not isinstance(answer, dict) or answer["closed by"] is None:
        return None
    code, _, text = answer["closed by"].partition(" ")
    return Failure(int(code), text)


def same(told: object, heard: object) -> bool:
    """Errors may have other words, and what RabbitMQ cannot stand is refused with a reason."""
    mine, theirs = failure(told), failure(heard)
    if mine is None or theirs is None:
        return told == heard
    if theirs.code == INTERNAL_ERROR:
        return 400 <= mine.code < 500
    return mine.code == theirs.code and same_text(mine, theirs)


def answers(name: str, path: Path) -> list[Any]:
    side = StoreSide(path, CHANNELS)
    try:
        return play(side, SCRIPTS[name])
    finally:
        side.close()


def differences(told: list[Any], heard: list[Any]) -> list[str]:
    return [
        f"{operation}\n    store   {mine}\n    broker  {theirs}"
        for (operation, mine), (_, theirs) in zip(told, heard, strict=True)
        if not same(mine, theirs)
    ]


@pytest.mark.parametrize("name", [each for each in SCRIPTS if each not in KNOWN])
def test_a_store_answers_as_rabbitmq_does(name: str, tmp_path: Path) -> None:
    found = differences(answers(name, tmp_path / "store"), written()[name])
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_difference_about_streams_is_still_one(name: str, tmp_path: Path) -> None:
    assert differences(answers(name, tmp_path / "store"), written()[name])

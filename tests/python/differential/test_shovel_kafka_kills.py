"""Shovels and Kafka: killed on either side, again and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import pyqstore
from pyqstore.shovelling.kafka_link import GROUP_TO

from .kafka import Kafka
from .kills import KILLS, PATIENT, held, kill_again_and_again, put

ROUND = 20_000
"""Messages that are there before a kill: most are under way then."""
MESSAGES = ROUND * KILLS
STREAM_ROUND = 60_000
"""Of a stream they are under way for a moment, so there are more: four transactions."""


def restarted(kafka: Kafka, victim: str) -> Callable[[], object] | None:
    return kafka.restart if victim == "kafka" else None


def publish(kafka: Kafka, topic: str, first: int) -> None:
    """Numbers, each once; confirmed when this returns."""
    kafka.publish(topic, [b"%d" % number for number in range(first, first + ROUND)])


@PATIENT
@pytest.mark.parametrize(
    ("victim", "kind"), [("shovel", "queue"), ("shovel", "stream"), ("kafka", "stream")]
)
def test_into_a_store_each_message_comes_once(
    kafka: Kafka, tmp_path: Path, victim: str, kind: str
) -> None:
    topic = kafka.new_topic(2)
    directory = tmp_path / "store"
    with pyqstore.open(directory) as store:
        (store.queue if kind == "queue" else store.stream)("b")
    hits = kill_again_and_again(
        restarted(kafka, victim),
        kafka.at(topic),
        f"{directory}#b",
        partial(publish, kafka, topic),
        partial(held, directory, "b"),
        ROUND,
    )
    found: Counter[int] = Counter()
    with pyqstore.open(directory) as store:
        if kind == "stream":
            for batch in store.stream("b").read("first", columns=["body"]):
                found.update(map(int, batch["body"].to_pylist()))
        with store.channel() as end:
            while kind == "queue" and (message := end.basic_get("b", auto_ack=True)) is not None:
                found[int(message.body)] += 1
    assert found == Counter(range(MESSAGES))
    assert hits > 0


@PATIENT
@pytest.mark.parametrize("victim", ["shovel", "kafka"])
def test_out_of_a_queue_each_message_comes(kafka: Kafka, tmp_path: Path, victim: str) -> None:
    """Kafka confirms late, so that much is on its way."""
    topic = kafka.new_topic(2)
    directory = tmp_path / "store"
    with pyqstore.open(directory) as store:
        store.queue("a")
    hits = kill_again_and_again(
        restarted(kafka, victim),
        f"{directory}#a",
        f"{kafka.at(topic)}?linger.ms=300",
        partial(put, directory, each=ROUND),
        partial(kafka.count, topic),
        ROUND,
    )
    found = Counter(int(message.value() or b"") for message in kafka.messages(topic))
    assert sorted(found) == list(range(MESSAGES))
    again = found.total() - MESSAGES
    print(f"came twice or more: {again} of {MESSAGES}")
    assert hits + again > 0


@PATIENT
@pytest.mark.parametrize("victim", ["shovel", "kafka"])
def test_out_of_a_stream_each_message_comes_once(kafka: Kafka, tmp_path: Path, victim: str) -> None:
    topic = kafka.new_topic(2)
    messages = STREAM_ROUND * KILLS
    directory = tmp_path / "store"
    with pyqstore.open(directory) as store:
        store.stream("a")
    hits = kill_again_and_again(
        restarted(kafka, victim),
        f"{directory}#a",
        kafka.at(topic),
        partial(put, directory, each=STREAM_ROUND),
        partial(kafka.told, f"{GROUP_TO}kills/{topic}", topic),  # an abort moves none
        STREAM_ROUND,
        pause=0.5,
    )
    found = Counter(int(message.value() or b"") for message in kafka.messages(topic))
    assert found == Counter(range(messages))
    undone = len(kafka.messages(topic, committed=False)) - messages
    print(f"sent in transactions that did not end: {undone}")
    assert hits + undone > 0

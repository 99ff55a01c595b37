"""The Arrow fuzzer finds what is planted, and nothing in a new seed.

QS_ARROW_SEED repeats a run, QS_ARROW_SECONDS changes how long it takes; longer: ``./dev soak``.
"""

import contextlib
import ctypes
import datetime
import os
import random
from collections.abc import Callable

import pyarrow as pa
import pytest

import pyqstore

from .apart import run_apart
from .arrow import Place, run_case
from .arrow.memory import Memory
from .arrow.node import Maker, Node
from .arrow.reader import fit, read
from .report import seed_of
from .watched import run_watched

SECONDS = float(os.environ.get("QS_ARROW_SECONDS", "20"))
Publish = Callable[[pyqstore.Channel, object], object]


@pytest.mark.slow
def test_batches_made_by_hand_are_refused_or_mean_what_they_say() -> None:
    run_apart("arrow", seed_of("QS_ARROW_SEED"), SECONDS)


def test_valid_batches_mean_what_pyarrow_reads() -> None:
    memory = Memory()
    for number in range(300):
        chance = random.Random(number)
        root = Maker(chance).batch()
        fit(root)
        memory.clear()
        schema, array = memory.schema(root), memory.array(root)
        batch = pa.Array._import_from_c(array, schema)
        if all(node.length for node in root.walk()):  # pyarrow gives empty ones no buffers
            batch.validate(full=True)
        for row, values in zip(read(root, "", "q"), batch.to_pylist(), strict=True):
            body = values.pop("body")
            assert row.body == (body.encode() if isinstance(body, str) else body)
            assert row.routing_key == values.pop("routing_key", None) or row.routing_key == "q"
            values.pop("exchange", None)
            for name, value in row.properties:
                told = values.get(name)
                if isinstance(told, datetime.datetime):
                    told = int(told.replace(tzinfo=datetime.UTC).timestamp())
                elif name == "headers":
                    told = dict(told or [])
                elif name == "delivery_mode" and told is None:
                    told = 2
                assert told == value, (name, told, value)


def violations(publish: Publish, cases: int = 60) -> str:
    place = Place(publish)
    found = [text for number in range(cases) for text in run_case(place, 1, number).violations]
    assert place.store is not None
    place.store.close()
    return "\n".join(found)


def test_message_of_a_refused_batch_is_caught() -> None:
    def publish(channel: pyqstore.Channel, data: object) -> None:
        try:
            channel.publish_batch(data, "", "q")
        except ValueError:
            channel.basic_publish("", "q", b"the first row")
            raise

    assert "is there" in violations(publish)


def test_wrong_batch_that_is_taken_is_caught() -> None:
    def publish(channel: pyqstore.Channel, data: object) -> None:
        with contextlib.suppress(ValueError):
            channel.publish_batch(data, "", "q")

    assert "published, although" in violations(publish)


def test_row_too_many_is_caught() -> None:
    def publish(channel: pyqstore.Channel, data: object) -> None:
        channel.publish_batch(data, "", "q")
        channel.basic_publish("", "q", b"one more")

    assert "expected" in violations(publish)


def test_refusal_without_a_place_is_caught() -> None:
    def publish(channel: pyqstore.Channel, data: object) -> None:
        try:
            channel.publish_batch(data, "", "q")
        except ValueError:
            raise ValueError("wrong") from None

    assert "a refusal that says nothing: 'wrong'" in violations(publish)


def test_structure_that_is_released_twice_is_caught() -> None:
    places: list[Place] = []

    def publish(channel: pyqstore.Channel, data: object) -> None:
        channel.publish_batch(data, "", "q")
        for address in places[0].memory.structures:
            places[0].memory.released[address] += 1

    place = Place(publish)
    places.append(place)
    found = [text for number in range(60) for text in run_case(place, 1, number).violations]
    assert "were released" in "\n".join(found)
    assert place.store is not None
    place.store.close()


def test_byte_read_behind_a_buffer_is_a_crash_that_is_told() -> None:
    def publish(channel: pyqstore.Channel, data: object) -> None:
        channel.publish_batch(data, "", "q")
        start, size = place.memory.used[-1]
        ctypes.string_at(place.memory.base + start, size + 1)

    place = Place(publish)
    outcomes = dict(run_watched(lambda case: run_case(place, 1, case), 3600, most=3))
    assert any(
        "ended with SIGSEGV" in text for each in outcomes.values() for text in each.violations
    )


def test_node_that_claims_too_much_is_made_to_fit() -> None:
    node = Node(b"z", b"body", 2, 0, 0, [None, b"\0\0\0\0\3\0\0\0\7\0\0\0", b"abc"])
    root = Node(b"+s", b"", 2, 0, 0, [None], [node])
    fit(root)
    assert [row.body for row in read(root, "", "q")] == [b"abc", b"\0\0\0\0"]

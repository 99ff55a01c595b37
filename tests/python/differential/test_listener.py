"""The same scripts on a store in this process and, through pika, on one behind a listener: the
third side, beside that store and RabbitMQ in ``test_differential.py``."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest

import pyqstore

from .compare import find_difference, shrink
from .rules import KNOWN, UNDETERMINED, consumes_of_bounded_queue, expires_behind
from .script import Generator
from .test_differential import FIRST_SEED, OPERATIONS, SEEDS

# What a waiting consumer gets depends on when it asks, and a listener asks at once.
HASTY = (expires_behind, consumes_of_bounded_queue)
RULES = (*UNDETERMINED, *(rule for rule in KNOWN if rule.applies in HASTY))


class Listening:
    """What there is to know of a server: where it listens."""

    def __init__(self, port: int) -> None:
        self._port = port

    def parameters(self) -> pika.ConnectionParameters:
        return pika.ConnectionParameters("127.0.0.1", self._port, heartbeat=0, socket_timeout=30)


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    with pyqstore.open(tmp_path_factory.mktemp("listening") / "store", sync="none") as store:
        yield Listening(int(store.listen("127.0.0.1:0").address.rpartition(":")[2]))


@pytest.mark.parametrize(
    "seed",
    [pytest.param(FIRST_SEED, marks=pytest.mark.gate), *range(FIRST_SEED + 1, FIRST_SEED + SEEDS)],
)
def test_a_listener_does_what_a_store_does(seed: int, listening: Listening) -> None:
    script = Generator(seed).operations(OPERATIONS)
    if find_difference(script, listening, rules=RULES) is not None:
        shortest, difference = shrink(script, listening, RULES)
        pytest.fail(f"seed {seed}, {len(shortest)} operations:\n{difference}", pytrace=False)

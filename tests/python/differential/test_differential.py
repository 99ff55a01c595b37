"""The same script of operations on a store and on RabbitMQ 3.10: everything that a client can see
must be the same.

Scripts are made up from seeds: QS_DIFFERENTIAL_SEEDS of them, from QS_DIFFERENTIAL_SEED on.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from .broker import Broker
from .compare import RULES, find_difference, shrink
from .rules import KNOWN, Rule
from .script import Generator

OPERATIONS = 75
SEEDS = int(os.environ.get("QS_DIFFERENTIAL_SEEDS", "40"))
FIRST_SEED = int(os.environ.get("QS_DIFFERENTIAL_SEED", "1"))
SEMANTICS = Path(__file__).resolve().parents[3] / "docs/SEMANTICS.md"


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_store_does_what_rabbitmq_does(seed: int, broker: Broker) -> None:
    script = Generator(seed).operations(OPERATIONS)
    if find_difference(script, broker) is not None:
        shortest, difference = shrink(script, broker)
        pytest.fail(f"seed {seed}, {len(shortest)} operations:\n{difference}", pytrace=False)


@pytest.mark.parametrize("known", KNOWN, ids=lambda rule: rule.name)
def test_known_difference_is_still_one(known: Rule, broker: Broker) -> None:
    rules = [rule for rule in RULES if rule is not known]
    assert find_difference(known.example, broker, patience=0.5, rules=rules) is not None
    assert find_difference(known.example, broker) is None


def test_known_differences_are_documented() -> None:
    rows = re.findall(r"^\| ([^|]*?) \|", SEMANTICS.read_text(), re.MULTILINE)
    assert [rule.name for rule in KNOWN if rule.name not in rows] == []

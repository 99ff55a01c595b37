"""The model of the mixed workload: what it blames, and what it leaves open."""

from typing import Any

from .mixed.inspection import Found, Holding
from .mixed.messages import Copy
from .mixed.model import Model

FIRST: Copy = ("1.p0.1.5", "plain.0")
SECOND: Copy = ("1.p0.2.5", "plain.0")
THIRD: Copy = ("1.p0.3.5", "plain.0")


def told(model: Model, *events: tuple[Any, ...]) -> None:
    """One life in which these were told."""
    model.begin_life()
    model.read((0, what, list(detail)) for what, *detail in events)


def blamed(model: Model, *there: Copy, keys: dict[str, bool] | None = None) -> list[str]:
    """What the model says to a store with these, in this order."""
    found = Found(keys=keys or {})
    for name, queue in there:
        found.copies.setdefault((name, queue), []).append(Holding(queue, ""))
        found.order.setdefault(queue, []).append(name)
    before = len(model.violations)
    model.check(found)
    return model.violations[before:]


def published(*copies: Copy) -> Model:
    model = Model()
    told(model, ("publish", copies), ("confirm", copies))
    return model


def test_what_was_confirmed_must_be_there_once_and_in_order() -> None:
    assert blamed(published(FIRST, SECOND), FIRST, SECOND) == []
    assert "LOST" in blamed(published(FIRST, SECOND), FIRST)[0]
    assert "2 times" in blamed(published(FIRST), FIRST, FIRST)[0]
    assert "comes behind" in blamed(published(FIRST, SECOND), SECOND, FIRST)[0]


def test_what_was_under_way_may_be_there_and_is_known_from_then_on() -> None:
    model = Model()
    told(model, ("publish", [FIRST, SECOND]))
    assert blamed(model, FIRST) == []
    assert "never published" in blamed(model, FIRST, SECOND)[0]
    assert "LOST" in blamed(model)[0]


def test_of_what_was_not_confirmed_a_prefix_is_there() -> None:
    model = Model()
    told(model, ("publish", [FIRST, SECOND]))
    assert "is there" in blamed(model, SECOND)[0]


def test_an_ack_may_be_undone_until_it_is_durable() -> None:
    model = published(FIRST, SECOND)
    told(model, ("got", "plain.0", [FIRST, SECOND]), ("settle", [FIRST, SECOND]))
    model.read([(0, "durable", [[SECOND]])])
    assert blamed(model, FIRST) == []
    model = published(FIRST)
    told(model, ("got", "plain.0", [FIRST]), ("settle", [FIRST]), ("durable", [FIRST]))
    assert "is back" in blamed(model, FIRST)[0]


def test_a_transaction_happens_whole_or_not_at_all() -> None:
    for there, wrong in (((FIRST,), False), ((SECOND, THIRD), False), ((FIRST, SECOND), True)):
        model = published(FIRST)
        told(model, ("got", "plain.0", [FIRST]), ("begin", "none.1", [SECOND, THIRD], [FIRST], []))
        assert bool(blamed(model, *there)) == wrong


def test_what_a_transaction_left_open_may_be_settled_in_the_next_life() -> None:
    model = published(FIRST)
    told(model, ("got", "plain.0", [FIRST]), ("begin", "none.1", [SECOND], [FIRST], []))
    told(model, ("got", "plain.0", [FIRST]), ("settle", [FIRST]), ("durable", [FIRST]))
    assert blamed(model) == []


def test_a_repetition_that_was_cut_off_is_open_again() -> None:
    for happened in (True, False):
        model = Model()
        told(model, ("begin", "key.1", [FIRST], [], []))
        assert blamed(model, keys={"key.1": False}) == []
        told(model, ("repeat", "key.1", [FIRST]))
        assert blamed(model, *[FIRST] * happened, keys={"key.1": happened}) == []
        told(model, ("repeat", "key.1", [FIRST]), ("repeated", "key.1", happened))
        assert bool(model.violations)

"""Which consumer of a group reads which stream: against a model of what each of them holds."""

import random

import pytest

from pyqstore.stream_group import Group, Groups, Member


def take(group: Group, member: Member) -> list[str]:
    assigned = group.assigned_to(member)
    group.taken(member, assigned)
    return assigned


def poll(group: Group, member: Member, held: dict[Member, set[str]]) -> None:
    revoked = group.revoked_of(member)
    held[member] -= set(revoked)
    group.released(member, revoked)
    held[member] |= set(take(group, member))


@pytest.mark.parametrize("seed", range(200))
def test_no_stream_has_two_readers_and_in_the_end_each_has_one(seed: int) -> None:
    chance = random.Random(seed)
    group = Group("billing")
    names = [f"s{i}" for i in range(chance.randint(1, 9))]
    held: dict[Member, set[str]] = {}
    for _ in range(60):
        what = chance.random()
        if what < 0.2 and len(held) < 6:
            wanted = names if chance.random() < 0.7 else chance.sample(names, 1)
            held[group.join(wanted, None)] = set()
        elif what < 0.3 and held:
            member = chance.choice(list(held))
            del held[member]
            group.leave(member)
        elif held:
            poll(group, chance.choice(list(held)), held)
        read = [name for streams in held.values() for name in streams]
        assert len(read) == len(set(read))
    for _ in range(4):
        for member in held:
            poll(group, member, held)
    assert {n for streams in held.values() for n in streams} == {
        n for member in held for n in member.streams
    }
    assert not any(group.has_news(member) for member in held)
    if held and all(member.streams == names for member in held):
        counts = [len(streams) for streams in held.values()]
        assert max(counts) - min(counts) <= 1


def test_a_second_consumer_takes_no_more_than_half_whoever_else_asks_meanwhile() -> None:
    group = Group("billing")
    names = ["a", "b", "c", "d"]
    first = group.join(names, "first")
    assert take(group, first) == names
    second = group.join(names, "second")
    other = group.join(["x"], "other")
    assert take(group, other) == ["x"]
    group.leave(other)
    assert group.revoked_of(first) == ["c", "d"]
    assert group.assigned_to(second) == []  # the first one has not given them up
    group.released(first, ["c", "d"])
    assert group.assigned_to(second) == ["c", "d"]


def test_what_was_to_move_stays_when_its_heir_leaves() -> None:
    group = Group("billing")
    first = group.join(["a", "b"], "first")
    take(group, first)
    second = group.join(["a", "b"], "second")
    assert group.has_news(first)
    group.leave(second)
    assert not group.has_news(first)


def test_instances_have_one_name_each() -> None:
    groups = Groups()
    group = groups.of("billing")
    assert groups.of("billing") is group
    group.join(["a"], "one")
    with pytest.raises(ValueError, match="'one' is in group 'billing'"):
        group.join(["a"], "one")
    assert group.join(["a"], None).instance != group.join(["a"], None).instance

"""The same cases on an embedded ActiveMQ and on a store: which message is acknowledged when, how
often it is delivered again, in which order, and after which delay.

Where the two differ on purpose the case says what a store does; docs/SEMANTICS.md says why.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import activemq_side as activemq
from .sessions import Cases, Seen, all_cases

Both = tuple[dict[str, Seen], dict[str, Seen]]
PREFETCH, COUNT = 20, 100
WINDOW = PREFETCH + PREFETCH // 2
# What a delay may be longer on a busy machine, and shorter by the clocks' steps.
LATE_MS, EARLY_MS = 5000, 5


def window(theirs: Seen) -> Seen:
    """Without an acknowledgement by hand a consumer stalls at 1.5 x prefetch; there it never
    does."""
    assert theirs == [0] * (COUNT + 2)
    return theirs[:WINDOW] + theirs[-2:]


def late(theirs: Seen, listener: bool) -> Seen:
    """DUPS_OK on a queue acknowledges in batches when optimized; there, one by one."""
    assert theirs[-2:] == [COUNT, COUNT]
    before = 0 if listener else 1
    batch = 13
    return [
        *((number + before) // batch * batch for number in range(COUNT)),
        COUNT // batch * batch,
        COUNT,
    ]


def counted(theirs: Seen) -> Seen:
    """With batches, a message whose listener raised is delivered again until it returns, and the
    others are acknowledged; there, both are lost sight of."""
    assert theirs[:5] == ["a 1", "b 1", "b again 2", "c 1", 0]
    return ["a 1", "b 1", "b again 2", "b again 3", "c 1", 0]


def told(theirs: Seen) -> Seen:
    """What was handed out and is not acknowledged was delivered before; there, that is forgotten
    when a later message was acknowledged."""
    return [each.replace(" 1", " again 2") if isinstance(each, str) else each for each in theirs]


def expected(name: str, theirs: Seen) -> Seen:
    """What a store does where ActiveMQ did this."""
    words = name.split()
    by_hand = words[1:2] and words[1] in ("client", "individual", "transacted")
    if words[0] == "moments" and by_hand:
        return window(theirs)
    if name.startswith("moments dups_ok optimize queue"):
        return late(theirs, "listener" in words)
    if name.startswith("raises auto optimize"):
        return counted(theirs)
    if name == "individual":
        return told(theirs)
    return theirs


DIFFERENT = {
    *(
        f"moments {mode}{optimize} {place} {style} 20"
        for mode in ("client", "individual", "transacted")
        for optimize in ("", " optimize")
        for place in ("queue", "topic")
        for style in ("receive", "listener")
        if not (mode == "transacted" and optimize)
    ),
    "moments dups_ok optimize queue receive 20",
    "moments dups_ok optimize queue listener 20",
    "raises auto optimize queue",
    "raises auto optimize topic",
    "individual",
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """By case, what ActiveMQ did and what the store did, at the same time."""
    process = activemq.begin(tmp_path_factory.mktemp("classes"))
    try:
        cases = Cases(tmp_path_factory.mktemp("store") / "store")
        try:
            ours = {name: play() for name, play in all_cases(cases).items()}
        finally:
            cases.close()
        yield activemq.seen(process), ours
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_both_play_the_same_cases(played: Both) -> None:
    theirs, ours = played
    assert theirs.keys() == ours.keys()
    assert sum(name.startswith("moments") for name in ours) == 34 + 4  # and transacted


@pytest.mark.slow
def test_a_store_does_what_activemq_does(played: Both, subtests: pytest.Subtests) -> None:
    theirs, ours = played
    for name in theirs.keys() - {"delays"}:
        with subtests.test(name):
            assert ours[name] == expected(name, theirs[name])


@pytest.mark.slow
def test_what_is_listed_as_different_is(played: Both) -> None:
    theirs, ours = played
    assert {name for name in theirs if name != "delays" and theirs[name] != ours[name]} == DIFFERENT


@pytest.mark.slow
def test_delays_are_those_of_activemq(played: Both) -> None:
    due = [60, 120, 240, 300, 300]
    for seen in played:
        delays = seen["delays"]
        assert len(delays) == len(due)
        for delay, least in zip(delays, due, strict=True):
            assert isinstance(delay, int)
            assert least - EARLY_MS <= delay <= least + LATE_MS

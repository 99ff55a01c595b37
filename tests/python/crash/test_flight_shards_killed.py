"""Servers of one transaction that are killed between any two steps of its two phases."""

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

import pyqstore

from ..serving import Served, served
from ..sharing import DEALS, Calls, Died, job, rows_of

# Where a server kills itself: what is replaced, which of its calls, whether before or after it;
# and whether something is promised, or committed, then.
_RECORD = "source.endswith('.tmp') and '/prepared.' in source"
_PROMISE = "'/prepared-' in target"
_DONE = "'/prepared-' in source and '/flight-' in target"
_ADOPTION = "target"
MOMENTS = {
    "checked, and no record": ("os.rename", _RECORD, "before", ""),
    "a record, and no promise": ("os.rename", _PROMISE, "before", ""),
    "promised, and nobody heard": ("os.rename", _PROMISE, "after", "prepared"),
    "about to commit": ("pyqstore.Store.adopt", _ADOPTION, "before", "prepared"),
    "committed, and still promised": ("pyqstore.Store.adopt", _ADOPTION, "after", "both"),
    "committed, and nothing renamed": ("os.rename", _DONE, "before", "both"),
    "committed, and files left": ("os.rename", _DONE, "after", "committed"),
}
# A client that lives undoes what can be undone; it has nothing to undo when all is prepared.
CASES = [(moment, False) for moment in MOMENTS] + [(moment, True) for moment in list(MOMENTS)[:3]]


def planted(moment: str) -> str:
    name, which, when, _ = MOMENTS[moment]
    owner, _, function = name.rpartition(".")
    return f"""
import os, signal
import pyqstore
kept = {name}
def dies(first, second, *rest, **named):
    source, target = (str(first), str(second)) if isinstance(first, (str, os.PathLike)) else (
        "", second)
    def end():
        os.kill(os.getpid(), signal.SIGKILL)
    matches = {which}
    if matches and {when == "before"}:
        end()
    done = kept(first, second, *rest, **named)
    if matches:
        end()
    return done
{owner}.{function} = dies
"""


class Pair:
    """Two servers, each at an address that stays."""

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / name for name in ("one", "two")]
        self.addresses = [f"unix:{path}.socket" for path in self.paths]
        for path in self.paths:
            with pyqstore.open(path) as store, store.channel() as channel:
                channel.queue_declare("q", durable=True)
                store.stream("s")

    def start(self, stack: ExitStack, number: int, moment: str | None = None) -> Served:
        code = "" if moment is None else planted(moment)
        one = served(self.paths[number], "--flight", self.addresses[number], planted=code)
        return stack.enter_context(one)

    def run(self, name: str, deal: int, queue: str, *, is_mortal: bool = False) -> None:
        calls = Calls(is_mortal=is_mortal)
        with ExitStack() as stack:
            clients = [stack.enter_context(pyqstore.connect(each)) for each in self.addresses]
            job([calls.of(client) for client in clients], name, DEALS[deal], queue=queue)

    def folders(self, number: int) -> list[str]:
        return [each.name[:8] for each in (self.paths[number] / "staging").glob("prepared-*")]

    def bodies(self) -> list[bytes]:
        found: list[bytes] = []
        for path in self.paths:
            with pyqstore.open(path) as store:
                for batch in store.browse("q"):
                    found += batch["body"].to_pylist()
                found += store.stream("s").read().read_all()["body"].to_pylist()
        return sorted(found)


@pytest.mark.slow  # two minutes, all of them
@pytest.mark.crash
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(("moment", "is_mortal"), CASES)
def test_a_server_that_is_killed_in_two_phases_loses_and_doubles_no_row_of_a_repeat(
    tmp_path: Path, moment: str, number: int, is_mortal: bool
) -> None:
    pair, queue = Pair(tmp_path), "qs"[number]
    left = MOMENTS[moment][3]
    with ExitStack() as stack:
        pair.start(stack, 1 - number).addresses()
        dying = pair.start(stack, number, moment)
        dying.addresses()
        with pytest.raises((pyqstore.ConnectionLost, Died)):
            pair.run("j", 0, queue, is_mortal=is_mortal)
        assert dying.process.wait(30) == -signal.SIGKILL
        assert pair.folders(number) == (["prepared"] if left in ("prepared", "both") else [])
        server = pair.start(stack, number)
        server.addresses()
        with pyqstore.connect(pair.addresses[number]) as client:
            state = client.transaction_state("j")
            assert state.committed == (left in ("both", "committed"))
            assert (state.run is not None) == (left == "prepared")
            assert pair.folders(number) == (["prepared"] if left == "prepared" else [])
        for deal in (1, 2):
            pair.run("j", deal, queue)
        assert pair.folders(0) == pair.folders(1) == []
        assert server.end()[0] == 0
    assert pair.bodies() == rows_of("j")


@pytest.mark.crash
def test_a_server_that_is_killed_when_it_removes_what_is_committed_starts_again(
    tmp_path: Path,
) -> None:
    pair = Pair(tmp_path)
    with ExitStack() as stack:
        pair.start(stack, 0).addresses()
        first = pair.start(stack, 1, "committed, and still promised")
        first.addresses()
        with pytest.raises(pyqstore.ConnectionLost):
            pair.run("j", 0, "q")
        assert first.process.wait(30) == -signal.SIGKILL
        second = pair.start(stack, 1, "committed, and nothing renamed")
        assert second.process.wait(60) == -signal.SIGKILL
        assert pair.folders(1) == ["prepared"]
        pair.start(stack, 1).addresses()
        assert pair.folders(1) == []
        pair.run("j", 1, "q")
    assert pair.bodies() == rows_of("j")

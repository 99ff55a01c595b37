"""Jobs over several servers whose clients die between any two calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

import pyqstore
from pyqstore.flight import Client, Staged, StagedCommit, commit_shards

ROWS = 8
# Which of two servers gets a row: each try at a job deals them in another way.
DEALS: tuple[Callable[[int], int], ...] = (
    lambda row: row % 2,
    lambda row: (row // 2) % 2,
    lambda row: (row // 4) % 2,
)


class Died(BaseException):
    """The client's process ends here: nothing of it catches that."""


class Calls:
    """Counts the calls of a job's clients; ``at`` is done instead of call ``number``.

    ``is_mortal``: the client's process dies with the first server that does.
    """

    def __init__(
        self,
        number: int = -1,
        at: Callable[[Callable[[], Any]], Any] | None = None,
        *,
        is_mortal: bool = False,
    ) -> None:
        self.count = 0
        self._number = number
        self._at = at
        self._is_mortal = is_mortal
        self._is_dead = False

    def of(self, client: Client) -> Any:
        return _Counted(client, self)

    def do(self, call: Callable[[], Any]) -> Any:
        if self._is_dead:
            raise Died
        self.count += 1
        try:
            return self._at(call) if self._at and self.count == self._number else call()
        except (Died, pyqstore.ConnectionLost) as error:
            self._is_dead = self._is_mortal or isinstance(error, Died)
            if self._is_dead:
                raise Died from error
            raise


class _Counted:
    def __init__(self, client: Client, calls: Calls) -> None:
        self.url = client.url
        self._client, self._calls = client, calls

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self._client, name)
        return lambda *given, **named: self._calls.do(lambda: verb(*given, **named))


def dies_before(_: Callable[[], Any]) -> None:
    raise Died


def dies_after(call: Callable[[], Any]) -> None:
    """The server did it, and nobody heard."""
    with suppress(pyqstore.Error):
        call()
    raise Died


def rows_of(name: str) -> list[bytes]:
    return [f"{name} {row}".encode() for row in range(ROWS)]


def job(
    clients: Sequence[Any],
    name: str,
    deal: Callable[[int], int],
    *,
    queue: str = "q",
    told: bool = True,
    transaction: str | None = None,
) -> list[StagedCommit]:
    """One try at the job ``name``; ``transaction``: how it stages, in place of a new name."""
    stage = transaction or f"{name} {id(deal)}"
    staged: list[list[Staged]] = []
    for number, client in enumerate(clients):
        bodies = [body for row, body in enumerate(rows_of(name)) if deal(row) == number]
        where = ("", queue) if told else ()
        data = pa.table({"body": pa.array(bodies, pa.binary())})
        staged.append([client.stage(data, stage, number, 1, *where)])
    return commit_shards(clients, stage, staged, "", queue, mandatory=True, key=name)

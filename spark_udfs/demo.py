"""The flights out of New York in 2013 through a pipeline that is killed three times.

    flights -> Spark -> queues by origin -> streaming query -> totals -> stream -> polars

Each step of Spark is a process of its own (``steps``).  The job that writes the queues is killed
before its commit; the streaming query is killed in a batch, and then between two batches.  Each is
run again as it was.  Then polars adds up what the stream has, and each figure is held against
Spark's own: a batch that is missing, or there twice, would change some of them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .flights import FIGURES, KEYS, QUEUES, STREAM, DemoError, declare, flights_csv
from .outcome import Outcome, compare
from .steps import Step

if TYPE_CHECKING:
    import pyqstore

    from .progress import Stages


def run(path: Path | None = None, *, keep: bool = False) -> int:
    """The demonstration.

    Args:
        path: directory for the store, made when missing; it may not hold a store. None: a temporary
            one.
        keep: leave the store there afterwards (implied by path).

    Returns:
        The exit status: 0 when everything agrees, 1 when anything does not.

    Raises:
        DemoError: it could not be run.
    """
    from .progress import Stages
    from .tables import print_tables

    if path and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise DemoError(f"{path} is not an empty directory: name one, or none")
    scratch = Path(tempfile.mkdtemp(prefix="pyqstore-demo-"))
    store_path = path.absolute() if path else scratch / "flights.qs"
    try:
        with Stages() as stages:
            outcome = _run(store_path, scratch, stages)
        outcome.faults = compare(outcome)
        print_tables(outcome)
    finally:
        if keep and path is None and store_path.exists():
            kept = Path(tempfile.mkdtemp(prefix="pyqstore-flights-"))
            shutil.move(str(store_path), kept)
            print(f"the store is kept in {kept / store_path.name}")
        shutil.rmtree(scratch, ignore_errors=True)
    return 1 if outcome.faults else 0


def _run(path: Path, scratch: Path, stages: Stages) -> Outcome:
    import polars as pl

    import pyqstore

    flights_csv(scratch)
    outcome = Outcome(pl.DataFrame(), pl.DataFrame())
    with stages.stage("Spark's own totals") as show, Step("count", path, scratch) as step:
        step.finish(lambda: None)
        outcome.expected = pl.read_parquet(scratch / "expected.parquet")
        show(outcome.rows)
    with pyqstore.open(path) as store:
        declare(store)
    _write(path, scratch, stages, outcome)
    _total(path, scratch, stages, outcome)
    with stages.stage("Stream into polars", unit="totals") as show, pyqstore.open(path) as store:
        queues = [name for name in store.queues() if name != STREAM]  # and claims
        outcome.left = sum(int(store.queue_status(name).messages_ready) for name in queues)
        _read(store, outcome)
        show(outcome.published)
    return outcome


def _write(path: Path, scratch: Path, stages: Stages, outcome: Outcome) -> None:
    """Flights into the queues."""
    import pyqstore

    with (
        stages.stage("Flights to queues, killed before the commit", unit="files") as show,
        Step("write", path, scratch) as step,
    ):
        step.kill_when(lambda: staged(path) > 0, lambda: show(staged(path)))
        show(staged(path))
    with pyqstore.open(path) as store:
        found = sum(ready(store).values())
    outcome.kills.append(
        ("the job that writes", f"{staged(path)} files staged, {found:,} messages in the queues")
    )
    with (
        stages.stage("Flights to queues, again", outcome.rows) as show,
        Step("write", path, scratch) as step,
    ):
        step.finish(lambda: None)
    with pyqstore.open(path) as store:
        outcome.ready = ready(store)


def _total(path: Path, scratch: Path, stages: Stages, outcome: Outcome) -> None:
    """From the queues into the stream."""
    done = Batches(scratch / "checkpoint")

    def attempt(title: str, state: Callable[[], bool] | None = None) -> None:
        with (
            stages.stage(title, unit="batches") as show,
            Step("total", path, scratch) as step,
        ):
            if state is None:
                step.finish(lambda: show(done.ended))
            else:
                step.kill_when(state, lambda: show(done.ended))
            show(done.ended)

    before = staged(path)
    attempt(
        "Queues to stream, killed in a batch",
        lambda: done.begun > done.ended > 0 and staged(path) > before,
    )
    outcome.kills.append(
        (
            f"the query in batch {done.ended}",
            f"{staged(path) - before} files with its totals staged, {done.ended} batches done",
        )
    )
    seen = done.begun
    attempt(
        "Queues to stream, killed between batches",
        lambda: done.begun == done.ended > seen,
    )
    outcome.kills.append(
        (f"the query before batch {done.ended}", f"{done.ended} batches done, none begun")
    )
    attempt("Queues to stream, to the end")


class Batches:
    """The batches of a query, as its checkpoint tells."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint

    @property
    def begun(self) -> int:
        return self._count("offsets")

    @property
    def ended(self) -> int:
        return self._count("commits")

    def _count(self, log: str) -> int:
        return sum(name.isdigit() for name in _names(self._checkpoint / log))


def staged(path: Path) -> int:
    """The files that tasks finished, and whose job has not ended."""
    jobs = (_names(path / "staging" / job) for job in _names(path / "staging"))
    return sum(not name.endswith(".tmp") for names in jobs for name in names)


def _names(folder: Path) -> list[str]:
    """What is in a folder; nothing if it is not there, or no more."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return os.listdir(folder)
    return []


def ready(store: pyqstore.Store) -> dict[str, int]:
    """The messages in each queue, by origin."""
    return {
        origin: int(store.queue_status(queue).messages_ready) for origin, queue in QUEUES.items()
    }


def _read(store: pyqstore.Store, outcome: Outcome) -> None:
    """The totals of all batches, and their sums."""
    import polars as pl

    kind = pl.Struct({**dict.fromkeys(KEYS, pl.String()), **dict.fromkeys(FIGURES, pl.Int64())})
    rows = pl.DataFrame(store.stream(STREAM).read(columns=["body"]))
    totals = rows.select(pl.col("body").cast(pl.String).str.json_decode(kind)).unnest("body")
    outcome.published = totals.height
    outcome.found = totals.group_by(KEYS).agg(pl.col(FIGURES).sum())

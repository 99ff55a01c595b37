"""Progress on stderr: rich bars on a terminal, a plain line per stage elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text


class _RowsColumn(ProgressColumn):
    """ "166,158  18,000/s"; nothing for a stage that counts nothing."""

    def render(self, task: Task) -> Text:
        if task.fields.get("uncounted"):
            return Text("")
        words = f"{int(task.completed):,}"
        # rich's own speed of a finished task is that of its last seconds.
        speed = task.completed / task.finished_time if task.finished_time else task.speed
        if speed:
            words += f"  {int(speed):,}/s"
        return Text(words, style="progress.download")


def _bars(console: Console, *, transient: bool) -> Progress:
    return Progress(
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        _RowsColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=transient,
    )


@contextmanager
def rows_bar(title: str, *, force: bool = False) -> Iterator[Callable[[int], object]]:
    """A bar without a known end, gone when done; yields the function to call with the rows so far.

    Args:
        force: also when stderr is not a terminal.
    """
    console = Console(stderr=True, force_terminal=True if force else None)
    if not console.is_terminal:
        yield lambda rows: None
        return
    with _bars(console, transient=True) as bars:
        task = bars.add_task(title, total=None)
        yield lambda rows: bars.update(task, completed=rows)


class Stages:
    """The stages of a long command, one bar or one line each."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bars = _bars(self._console, transient=False) if self._console.is_terminal else None

    def __enter__(self) -> Stages:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    @contextmanager
    def stage(
        self, title: str, total: int | None = None, unit: str = "rows"
    ) -> Iterator[Callable[[int], object]]:
        """One stage; yields the function to call with what is done so far."""
        started = time.monotonic()
        last = 0
        if self._bars is None:

            def count(done: int) -> None:
                nonlocal last
                last = done

            yield count
            done = total if total is not None else last
            words = f": {done:,} {unit}" if done else ""
            self._console.print(
                f"{title}{words} ({time.monotonic() - started:.1f} s)", highlight=False
            )
            return
        bars = self._bars
        task = bars.add_task(title, total=total)

        def show(done: int) -> None:
            nonlocal last
            last = done
            bars.update(task, completed=done)

        yield show
        end = total if total is not None else last
        bars.update(task, total=end or 1, completed=end or 1, uncounted=not end)

"""``pyqstore bench``: a command for each workload."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import math
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import click
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from ..errors import Error
from ..paper import Paper
from ..terminal import fail
from . import laboratory, machine
from .report import Report, read
from .runs import Options, Progress, run_rounds

# A workload is a module beside this one, or of the laboratory: its docstring (whose first line is
# its help), TITLE, cases(options), PLOTS, and where it has something to say, notes(results);
# OPTIONS are click options of its own, that it finds in Options.chosen; ROUNDS, QUICK_ROUNDS: where
# cases are long.  A workload that keeps something running has begun(options, directory, progress),
# a context manager: what it gives stands in for the module.  What finished(results) gives, where
# there is such, is reported in place of the results.
WORKLOADS = (
    "fsync",
    "arrow",
    "consume",
    "fanout",
    "routing",
    "paging",
    "recovery",
    "scaling",
    "asynchronous",
    "streams",
)
_WIDTH_MOST = 1000
_FAILED = 3
_USAGE = 2
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ENDING_SECONDS = 30.0  # that taking away what was begun may take, servers included
_STDOUT = Path("-")
_ROUNDS = 5
_QUICK_ROUNDS = 3
_EPILOG = """Exit status: 0 measured; 2 wrong arguments; 3 anything else.

Machines are noisy: compare ratios of one run, not numbers of two."""


def _outputs() -> list[click.Parameter]:
    def path(name: str, help_text: str) -> click.Option:
        kind = click.Path(path_type=Path, dir_okay=False, writable=True)
        return click.Option(
            [name], type=kind, metavar="FILE", callback=_in_a_folder, help=help_text
        )

    return [
        path("--json", "Write all numbers there; -: to stdout, and no tables."),
        path("--plot", "Draw the plots there, as PNG."),
        path("--html", "Write a page with tables and plots there."),
        click.Option(
            ["--from", "source"],
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            metavar="FILE",
            help="Measure nothing: show and draw what --json wrote there.",
        ),
    ]


def _in_a_folder(_context: object, option: click.Parameter, path: Path | None) -> Path | None:
    """Whether there is a folder to write it to is told before minutes of measuring."""
    if path == _STDOUT:
        if option.name != "json":
            raise click.BadParameter("only --json goes to stdout")
    elif path is not None:
        folder = path.absolute().parent
        if not folder.is_dir():
            raise click.BadParameter(f"{path.parent} is no directory")
        if not path.exists() and not os.access(folder, os.W_OK):
            raise click.BadParameter(f"{path.parent} is not writable")
    return path


def _finite(_context: object, _option: object, scale: float) -> float:
    if not math.isfinite(scale):
        raise click.BadParameter(f"{scale} is no number of times")
    return scale


def _rounds(workload: ModuleType) -> tuple[int, int]:
    return getattr(workload, "ROUNDS", _ROUNDS), getattr(workload, "QUICK_ROUNDS", _QUICK_ROUNDS)


def _common(workload: ModuleType) -> list[click.Parameter]:
    return [
        click.Option(
            ["--directory"],
            type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
            default=".",
            help="On the disk to measure; everything is in a new directory there, and goes with it."
            "  Default: the current one.",
        ),
        click.Option(
            ["--rounds"],
            type=click.IntRange(min=1),
            help="How often each case is measured.  Default: {}, with --quick {}.".format(
                *_rounds(workload)
            ),
        ),
        click.Option(["--quick"], is_flag=True, help="Less of everything, in seconds."),
        click.Option(
            ["--quiet"],
            is_flag=True,
            help="Begin each round when the load of the last minute is below"
            f" {machine.QUIET_LOAD}; fail where that takes {machine.QUIET_S / 60:.0f} minutes.",
        ),
        click.Option(
            ["--scale"],
            type=click.FloatRange(min=0, min_open=True),
            default=1.0,
            show_default=True,
            callback=_finite,
            help="Times so many messages.",
        ),
        *_outputs(),
    ]


class Workloads(click.Group):
    """The workloads, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*WORKLOADS, *laboratory.WORKLOADS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in WORKLOADS:
            return _command(cmd_name, importlib.import_module(f".{cmd_name}", __package__))
        if cmd_name not in laboratory.WORKLOADS:
            return None
        workload = laboratory.workload(cmd_name)
        return _missing(cmd_name) if workload is None else _command(cmd_name, workload)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = {
            "Workloads": WORKLOADS,
            "Laboratory, in the root of a clone of pyqstore alone": laboratory.WORKLOADS,
        }
        room = formatter.width - 6 - max(map(len, self.list_commands(ctx)))
        for title, names in sections.items():
            found = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [(name, each.get_short_help_str(room)) for name, each in found if each]
                )


@click.group(
    cls=Workloads, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
def bench() -> None:
    """Measure pyqstore beside what the disk does alone."""


def _missing(name: str) -> click.Command:
    """Of the laboratory, where there is none: whatever is asked for."""
    return click.Command(
        name,
        callback=lambda arguments: fail(laboratory.missing(name), _USAGE),
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        short_help="Not here.",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True},
    )


def _command(name: str, workload: ModuleType) -> click.Command:
    own: list[click.Parameter] = list(getattr(workload, "OPTIONS", ()))
    names = [str(option.name) for option in own if option.expose_value]

    def run(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in names}
        measure(name, workload, chosen, **given)

    return click.Command(
        name, callback=run, params=[*own, *_common(workload)], help=workload.__doc__
    )


def measure(
    name: str,
    workload: ModuleType,
    chosen: dict[str, object],
    *,
    directory: Path,
    rounds: int | None,
    quick: bool,
    quiet: bool,
    scale: float,
    json: Path | None,
    plot: Path | None,
    html: Path | None,
    source: Path | None,
) -> None:
    """Run a workload, and write and print what came."""
    options = Options(quick=quick, scale=scale, chosen=chosen)
    with _ended_cleanly():
        with _failures_told():
            if source is not None:
                report = read(source, name, workload.PLOTS)
            else:
                count = rounds or _rounds(workload)[quick]
                report = _measured(name, workload, options, directory, count, quiet)
        try:
            with _failures_told():
                for path, write in ((json, report.json), (plot, report.png), (html, report.html)):
                    if path not in (None, _STDOUT):
                        write(path)
        finally:  # what could not be written can still be read
            if json == _STDOUT:
                sys.stdout.write(report.json_text())
            else:
                _print(report)
            sys.stdout.flush()


def _measured(
    name: str, workload: ModuleType, options: Options, directory: Path, rounds: int, quiet: bool
) -> Report:
    started = datetime.datetime.now().astimezone().isoformat(" ", "seconds")
    facts = machine.facts(directory)
    with (
        _own_directory(directory) as own,
        _bar(name) as progress,
        _begun(workload, options, own, progress) as running,
    ):
        ready = machine.Quiet(progress) if quiet else None
        results = run_rounds(running.cases(options), own, rounds, progress, ready)
    notes = list(running.notes(results)) if hasattr(running, "notes") else []
    if hasattr(running, "finished"):
        results = running.finished(results)
    if machine.in_memory(facts):
        notes.insert(0, f"{directory} is memory ({facts['file system']}): no disk was measured.")
    if ready is not None:
        facts["load before each round"] = ready.told()
    said = {"rounds": rounds, "quick": options.quick, "scale": options.scale, **options.chosen}
    return Report(name, workload.TITLE, facts, started, said, results, workload.PLOTS, notes)


def _print(report: Report) -> None:
    wide, console = Console(width=_WIDTH_MOST), Paper(highlight=False, markup=False)
    for table in report.tables():
        # As wide as it is: a narrower terminal breaks the lines, and no number is cut.
        console.width = Measurement.get(wide, wide.options, table).maximum
        console.print(table)
        console.print()
    for note in report.notes:
        console.print(note, soft_wrap=True)  # for the terminal to break, too
    console.print()
    for fact, value in report.machine.items():
        console.print(f"{fact}: {value}", soft_wrap=True)


def _begun(
    workload: ModuleType, options: Options, directory: Path, progress: Progress
) -> contextlib.AbstractContextManager[Any]:
    if hasattr(workload, "begun"):
        begun: contextlib.AbstractContextManager[Any] = workload.begun(options, directory, progress)
        return begun
    return contextlib.nullcontext(workload)


@contextlib.contextmanager
def _own_directory(parent: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pyqstore-bench-", dir=parent) as name:
        yield Path(name)


@contextlib.contextmanager
def _ended_cleanly() -> Iterator[None]:
    """SIGTERM and a terminal that goes leave as Ctrl-C does: what was begun is taken away.

    Whoever is impatient does not stop that half way: servers would go on.
    """
    left = -math.inf

    def leave(_number: int, _frame: FrameType | None) -> None:
        nonlocal left
        if time.monotonic() - left > _ENDING_SECONDS:
            left = time.monotonic()
            raise KeyboardInterrupt

    # What is ignored, as under nohup, stays so.
    before = {number: signal.getsignal(number) for number in _ENDINGS}
    before = {number: kept for number, kept in before.items() if kept != signal.SIG_IGN}
    for number in before:
        signal.signal(number, leave)
    try:
        yield
    except KeyboardInterrupt:
        click.echo("pyqstore: interrupted", err=True)
        sys.exit(_FAILED)
    finally:
        for number, kept in before.items():
            signal.signal(number, kept)


@contextlib.contextmanager
def _failures_told() -> Iterator[None]:
    """A disk that is full, a server that does not start: what happened, and in which case."""
    try:
        yield
    except (Error, OSError, RuntimeError, ValueError) as error:
        told = [str(error) or repr(error), *getattr(error, "__notes__", ())]
        click.echo(f"pyqstore: {'; '.join(told)}", err=True)
        sys.exit(_FAILED)
    except Exception:
        traceback.print_exc()
        sys.exit(_FAILED)


@contextlib.contextmanager
def _bar(workload: str) -> Iterator[Progress]:
    console = Console(stderr=True)
    with Bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as bar:
        task = bar.add_task(workload, total=None)
        yield lambda what, done, total: bar.update(
            task, description=what, completed=done, total=total
        )

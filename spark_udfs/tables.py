"""What the demonstration prints at its end."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from .flights import BINDINGS, Half, Outcome, Tally


def print_tables(outcome: Outcome) -> None:
    """Print the tables on stdout."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=100)
    work = Table(title="Flights out of New York, 2013")
    work.add_column("")
    for name in outcome.halves:
        work.add_column(_HEADINGS[name], justify="right")
    halves = list(outcome.halves.values())
    for title, value in _WORK.items():
        work.add_row(title, *(value(part) for part in halves))
    for title, values in _of_one_half(outcome).items():
        work.add_row(title, *(values.get(name, "-") for name in outcome.halves))
    console.print(work)

    queues = Table(title="After the kill: what the queues hold")
    for heading in ("queue", "binding", "expected", "found", "bodies", "order", ""):
        queues.add_column(heading, justify="right" if heading in ("expected", "found") else "left")
    for queue, want in outcome.expected.items():
        have = outcome.found.get(queue, Tally())
        bodies = have.crc32_sum == want.crc32_sum
        good = bodies and have.rows == want.rows and not have.disorder
        queues.add_row(
            queue,
            BINDINGS.get(queue, ""),
            f"{want.rows:,}",
            f"{have.rows:,}",
            "equal" if bodies else "differ",
            "kept" if not have.disorder else f"{have.disorder:,} late",
            "[green]ok" if good else "[red]WRONG",
        )
    console.print(queues)

    drained = sum(tally.rows for tally in outcome.found.values())
    routed = sum(tally.rows for tally in outcome.expected.values())
    console.print(
        f"{outcome.rows:,} rows became {routed:,} routed copies.\n"
        f"Recovered after SIGKILL: {outcome.recovered:,} messages in {outcome.recovery_ms:.0f} ms "
        f"({outcome.open_ms:.0f} ms until the store was open).\n"
        f"Drained and acknowledged: {drained:,} messages in {outcome.drain_s:.2f} s "
        f"({drained / max(outcome.drain_s, 1e-9):,.0f} a second, checks included).",
        highlight=False,
    )
    for fault in outcome.faults:
        console.print(f"[red]MISMATCH[/red] {fault}", highlight=False)
    if not outcome.faults:
        console.print(
            "[green]All counts, bodies and orders agree with Spark's.[/green]", highlight=False
        )


def _of_one_half(outcome: Outcome) -> dict[str, dict[str, str]]:
    """Rows that make sense for one half only: publish() waits little, as the store syncs while
    Spark computes; the data source's half ends with a close."""
    part = outcome.halves["datasource"]
    return {
        "messages a second in the commit": {"datasource": _rate(part, part.store_seconds)},
        "recovery after SIGKILL": {"publish": f"{outcome.recovery_ms:.0f} ms"},
    }


def _latency(part: Half, percentile: str) -> str:
    latency = part.stats.get("confirm_latency_us") or part.stats.get("commit_latency_us") or {}
    return f"{latency[percentile] / 1000:.2f} ms" if percentile in latency else "-"


def _rate(part: Half, seconds: float) -> str:
    return f"{part.confirmed / max(seconds, 1e-9):,.0f}"


def _stat(part: Half, *names: str) -> str:
    for name in names:
        if name in part.stats:
            return f"{int(part.stats[name]):,}"
    return "-"


_HEADINGS = {"datasource": "data source, Jan-Jun", "publish": "publish(), Jul-Dec"}

_WORK: dict[str, Callable[[Half], str]] = {
    "rows": lambda part: f"{part.rows:,}",
    "routed copies": lambda part: _stat(part, "messages_routed"),
    "confirmed rows": lambda part: f"{part.confirmed:,}",
    "commits": lambda part: _stat(part, "commits"),
    "fdatasyncs": lambda part: _stat(part, "fdatasyncs"),
    "seconds, Spark included": lambda part: f"{part.seconds:.2f}",
    "messages a second": lambda part: _rate(part, part.seconds),
    "seconds waiting for the store": lambda part: f"{part.store_seconds:.2f}",
    "confirm latency p50": lambda part: _latency(part, "p50"),
    "confirm latency p99": lambda part: _latency(part, "p99"),
}

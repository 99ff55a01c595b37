"""What the demonstration prints at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    import polars as pl

    from .outcome import Outcome

_FAULTS_SHOWN = 20


def print_tables(outcome: Outcome) -> None:
    """Print the tables on stdout."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=100)
    console.print(_carriers(outcome))
    kills = Table(title="Killed with SIGKILL")
    for heading in ("what", "what was there"):
        kills.add_column(heading)
    for kill in outcome.kills:
        kills.add_row(*kill)
    console.print(kills)
    queues = ", ".join(f"{origin} {count:,}" for origin, count in outcome.ready.items())
    console.print(
        f"{outcome.rows:,} flights went through the queues ({queues}).\n"
        f"{outcome.published:,} totals of batches are in the stream, "
        f"of {outcome.found.height:,} pairs of carrier and route.",
        highlight=False,
    )
    for fault in outcome.faults[:_FAULTS_SHOWN]:
        console.print(f"[red]MISMATCH[/red] {fault}", highlight=False)
    if len(outcome.faults) > _FAULTS_SHOWN:
        console.print(f"... and {len(outcome.faults) - _FAULTS_SHOWN:,} more")
    if not outcome.faults:
        console.print("[green]Each figure is equal to Spark's own.[/green]", highlight=False)


def _carriers(outcome: Outcome) -> Table:
    """The totals of the stream by carrier, beside Spark's count of flights."""
    table = Table(title="Flights out of New York, 2013: what polars found in the stream")
    for heading in ("carrier", "routes", "flights", "Spark's", "miles", "minutes late", ""):
        table.add_column(heading, justify="left" if heading in ("carrier", "") else "right")
    found = {row["carrier"]: row for row in _by_carrier(outcome.found)}
    for want in _by_carrier(outcome.expected):
        have = found.get(want["carrier"], dict.fromkeys(want, 0))
        table.add_row(
            want["carrier"],
            f"{have['routes']:,}",
            f"{have['flights']:,}",
            f"{want['flights']:,}",
            f"{have['miles']:,}",
            f"{have['minutes_late']:,}",
            "[green]equal" if have == want else "[red]WRONG",
        )
    return table


def _by_carrier(totals: pl.DataFrame) -> list[dict[str, Any]]:
    import polars as pl

    figures = pl.col("flights", "miles", "minutes_late", "crc32_sum").sum()
    grouped = totals.group_by("carrier").agg(pl.len().alias("routes"), figures)
    return grouped.sort("flights", "carrier", descending=[True, False]).to_dicts()

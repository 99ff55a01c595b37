"""What came out of the demonstration, and whether it is what Spark counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .flights import FIGURES, KEYS, QUEUES

if TYPE_CHECKING:
    import polars as pl


@dataclass
class Outcome:
    """What came out.

    Attributes:
        expected: Spark's totals, by ``KEYS``; found: the sums of those in the stream.
        ready: messages in each queue when they had been written, by origin.
        left: messages that are in the queues at the end, and claims.
        published: totals in the stream, of each batch.
        kills: what was killed, and what was there then.
        faults: every disagreement, in words.
    """

    expected: pl.DataFrame
    found: pl.DataFrame
    ready: dict[str, int] = field(default_factory=dict)
    left: int = 0
    published: int = 0
    kills: list[tuple[str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return int(self.expected["flights"].sum())


def compare(outcome: Outcome) -> list[str]:
    """Every disagreement between what Spark counted and what came out, in words."""
    faults = []
    for origin, count in outcome.ready.items():
        want = int(outcome.expected.filter(origin=origin)["flights"].sum())
        if count != want:
            faults.append(f"queue '{QUEUES[origin]}': {count:,} messages written, not {want:,}")
    if outcome.left:
        faults.append(f"{outcome.left:,} messages are in queues at the end")
    for name, rows, others in (
        ("Spark", outcome.expected, outcome.found),
        ("the stream", outcome.found, outcome.expected),
    ):
        for row in rows.join(others, on=[*KEYS, *FIGURES], how="anti").sort(KEYS).to_dicts():
            figures = ", ".join(f"{figure} {row[figure]:,}" for figure in FIGURES)
            faults.append(f"{'.'.join(row[key] for key in KEYS)}: only {name} has {figures}")
    return faults

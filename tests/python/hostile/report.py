"""What every hostile tool gives back.

A tool is a module, or a package, of this folder with a function ``run(seed, seconds)``: it attacks
real stores for about that long, with random choices that follow from the seed, and returns a
:class:`Report`.  ``soak.py`` runs tools for as long as one likes; tests run the same function for a
moment, and once more with a planted fault, which must be in ``violations``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Protocol


@dataclass
class Report:
    """What a tool did, as counts by name, and each broken promise in a line of text."""

    figures: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def add(self, name: str, count: int = 1) -> None:
        """Count ``name`` up."""
        self.figures[name] = self.figures.get(name, 0) + count

    def __str__(self) -> str:
        counted = ", ".join(f"{count:,} {name}" for name, count in self.figures.items())
        told = "".join(f"\n  {text}" for text in self.violations[:20])
        return f"{counted}; {len(self.violations):,} violations{told}"


class Tool(Protocol):
    """What ``soak.py`` needs of a module."""

    def run(self, seed: int, seconds: float) -> Report:
        """Attack for about ``seconds``; what is random follows from ``seed``.

        Where a case stands for itself there is a third argument, ``case``: to repeat that one.
        """


def seed_of(name: str) -> int:
    """The seed in the environment variable ``name``, else 1: a plain run is the same each time, as
    far as threads and kills allow.  It is printed."""
    seed = int(os.environ.get(name, "1"))
    print(f"{name}={seed}")
    return seed

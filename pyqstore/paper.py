"""What the commands print tables on: a module of its own, as rich takes longer to import than most
commands to run."""

import contextlib
import sys

from rich.console import Console

from .terminal import EXIT_FAILED

__all__ = ["Paper"]


class Paper(Console):
    """What tables are printed on."""

    def on_broken_pipe(self) -> None:
        """As for all other output: rich's own exit status is 1, which means damage here."""
        with contextlib.suppress(SystemExit):
            super().on_broken_pipe()
        sys.exit(EXIT_FAILED)

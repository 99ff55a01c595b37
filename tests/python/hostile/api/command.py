"""The command line with arguments by chance: a documented exit status, never a traceback."""

import random
from pathlib import Path

from click.testing import CliRunner

from pyqstore.cli import main

_COMMANDS = ("inspect", "verify", "dump", "stats")
_WORDS = (
    "--json", "--limit", "--limit=3", "--limit=-1", "--limit=x", "kept", "a", "nothing", "-h", "--",
    "", "\x1b[2J", "ä", "--nonsense", "/nonexistent", "x" * 5000,
)  # fmt: skip


def call_commands(store: Path, chance: random.Random) -> list[str]:
    """What was wrong."""
    wrong = []
    for _ in range(6):
        words = [chance.choice(_COMMANDS)]
        if chance.random() < 0.9:
            words.append(str(store))
        words += [chance.choice(_WORDS) for _ in range(chance.randrange(4))]
        ended = CliRunner().invoke(main, words)
        if ended.exit_code not in (0, 1, 2, 3) or isinstance(ended.exception, Exception):
            wrong.append(f"pyqstore {words}: {ended.exit_code} {ended.exception!r}")
        if "\x1b[2J" in ended.output:
            wrong.append(f"pyqstore {words}: a control sequence came out")
    return wrong

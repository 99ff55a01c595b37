"""Commands as a document has them."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def commands(document: str, heading: str, replaced: Mapping[str, str]) -> list[list[str]]:
    """Those under a heading, each a list of words, in which ``replaced`` is replaced.  All of
    ``replaced`` must be there."""
    text = (ROOT / document).read_text()
    begin = text.index(f"\n## {heading}\n")
    end = text.find("\n## ", begin + 1)
    section = text[begin:] if end < 0 else text[begin:end]
    blocks = re.findall(r"^ *```\n(.*?)^ *```", section, re.M | re.S)
    found = "".join(blocks)
    for old, new in replaced.items():
        assert old in found, f"{document} has no {old!r} in the commands of {heading!r}"
        found = found.replace(old, new)
    return [shlex.split(line) for line in found.splitlines() if line.strip()]

"""Runs hostile tools for as long as one likes: ``./dev soak [TOOL...] [--minutes N] [--seed S]``.

Several tools share the time evenly.  The status is 1 when a tool found a broken promise.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
import time
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from python.hostile.report import Tool

TOOLS = ("killer", "powercut", "damage", "api", "arrow", "limits", "wire", "spark")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__)
    parser.add_argument("tools", nargs="*", choices=(*TOOLS, "all"), default="all", metavar="TOOL")
    parser.add_argument("--minutes", type=float, default=10.0, help="for all tools together")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--case", type=int, help="repeat one case of damage, api or arrow")
    given = parser.parse_args()
    repeat = {} if given.case is None else {"case": given.case}
    names = TOOLS if "all" in given.tools else given.tools
    print(f"seed {given.seed}", flush=True)
    broken = False
    for name in names:
        began = time.monotonic()
        tool = cast("Tool", importlib.import_module(f"python.hostile.{name}"))
        report = tool.run(given.seed, given.minutes * 60 / len(names), **repeat)
        broken = broken or bool(report.violations)
        print(f"{name}: {report} ({time.monotonic() - began:.0f} s)", flush=True)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())

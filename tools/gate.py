#!/usr/bin/env python3
"""The gate: what must pass before a change lands, in at most 20 minutes on two quiet processors.

    gate.py [STAGE...]    all stages, or some by name

The rest is tools/nightly.py's. docs/TESTING.md says what is where.
"""

import os
import sys
import time

import stages
from stages import Stage

# Two lanes beside each other: while one waits for downloads, disks or timers the other computes.
# "demo" comes last in its lane: it uses the wheel of "package", which is long installed by then.
LANES = (
    (
        Stage("package", ("package",)),  # the other stages of this lane use its wheel
        Stage("lint", ("lint",)),
        Stage("python", ("python",), again=("python",)),
    ),
    (
        Stage("native", ("native",), "debug", again=("native", "-R")),
        Stage("instructions", ("instructions",)),
        Stage("asan", ("asan", "-L", "unit", "-LE", "slow"), "asan"),
        Stage("tsan", ("tsan", "-L", "^thread", "-LE", "nightly"), "tsan"),
        Stage("demo", ("demo",)),
    ),
)


def main(names: list[str]) -> int:
    begun = time.monotonic()
    known = [stage.name for lane in LANES for stage in lane]
    if unknown := [name for name in names if name not in known]:
        print(f"gate: no stage {unknown[0]}; there are: {' '.join(known)}", file=sys.stderr)
        return 2
    os.environ |= {"QS_GATE": "1", "QS_SWEEPS": "short", "QS_MODELS": "short"}
    chosen = [[stage for stage in lane if not names or stage.name in names] for lane in LANES]
    results = stages.play_all(*chosen)
    return stages.report(results, time.monotonic() - begun) != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

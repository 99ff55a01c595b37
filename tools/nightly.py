#!/usr/bin/env python3
"""Everything that is not in the gate: what needs a server, a disk of its own, or minutes.

    nightly.py [PART...]    all parts, the quickest first, or some by name; --list names them

Each part runs though one before it failed. What is random takes a new seed, which is printed;
QS_SEED=N repeats it. docs/TESTING.md says what each part is.
"""

import os
import random
import sys
import time

import stages
from stages import Stage

# Seeds of tests and tools that are random.
SEEDS = (
    "QS_ARCHIVE_SEED",
    "QS_KILL_SEED",
    "QS_CUT_SEED",
    "QS_DAMAGE_SEED",
    "QS_API_SEED",
    "QS_ARROW_SEED",
    "QS_LIMITS_SEED",
    "QS_WIRE_SEED",
    "QS_SPARK_SEED",
    "QS_FLIGHT_SEED",
    "QS_TAKING_SEED",
    "QS_DIFFERENTIAL_SEED",
)


def python(name: str, *arguments: str) -> Stage:
    return Stage(name, ("python", *arguments), limit_s=7200)


def parts(seed: int) -> tuple[Stage, ...]:
    """The parts, the quickest first."""
    everything = ("-m", "")
    files = ("-n", "4", "--dist", "loadfile", "--no-loadscope-reorder")
    full = (("QS_SWEEPS", "all"),)
    differential = "tests/python/differential"
    # Folders of the gate, of which some tests are nightly.
    gated = ("tests/python/unit", "tests/python/crash", "tests/tidy")
    return (
        Stage("macos", ("macos",)),
        python("page", "tests/python/page", *everything),
        python("clock", "tests/python/unit", *files, "-m", "clock and not slow"),
        python("limits", "tests/python/limits", *everything),
        Stage("fuzz", ("fuzz", "180", f"-seed={seed % 2**31}")),
        python("models", "tests/python/model", *files, *everything),
        python("differential", differential, "--ignore-glob=**/test_shovel*", *files, *everything),
        python("rivals", *gated, *files, "-m", "rivals or slow"),
        python("shovels", differential, "-k", "test_shovel", *files, *everything),
        python("foreign", "tests/python/foreign", *everything),
        Stage("tsan", ("tsan",), "tsan", limit_s=14400),
        Stage("native", ("native",), "debug", environment=full, limit_s=7200),
        Stage("asan", ("asan",), "asan", limit_s=14400),
        python("spark", "tests/python/spark", *files, *everything),
        python("hostile", "tests/python/hostile", *files, *everything),
        Stage(
            "page-soak",
            ("python", "tests/python/page/test_page_many.py", *everything),
            environment=(("QS_PAGE_SOAK_S", "1200"),),
            limit_s=7200,
        ),
        Stage("soak", ("soak", "all", "--minutes", "8", "--seed", str(seed)), limit_s=7200),
    )


def main(names: list[str]) -> int:
    seed = int(os.environ.get("QS_SEED") or random.SystemRandom().randrange(2**31))
    known = [stage.name for stage in parts(seed)]
    if names == ["--list"]:
        print(*known, sep="\n")
        return 0
    if unknown := [name for name in names if name not in known]:
        print(f"nightly: no part {unknown[0]}; there are: {' '.join(known)}", file=sys.stderr)
        return 2
    print(f"QS_SEED={seed}", flush=True)
    os.environ |= {name: os.environ.get(name, str(seed)) for name in SEEDS}
    # What needs all of its tools fails without them.
    os.environ.setdefault("QS_REQUIRE", "all")
    begun = time.monotonic()
    results = stages.play_all([each for each in parts(seed) if each.name in (names or known)])
    failed = stages.report(results, time.monotonic() - begun)
    print(f"QS_SEED={seed}")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
"""Each of the gate's tests again and again, in random order, beside two busy loops.

    flaky.py [N] [ARGUMENT...]    N times (5); with arguments for pytest only what those name

The end names every test that failed once. A test named there depends on how soon something
happens: give it an event to wait for, the environment's clock, or the mark `clock`.
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter

import stages
from stages import Outcome, Stage

ROUNDS = 5
BUSY = "while True: pass"


def round_of(arguments: list[str], seed: int) -> list[Stage]:
    environment = (("QS_ORDER", str(seed)),)
    workers = ("-n", "4", "--dist", "load")
    chosen = arguments or ["-m", "not nightly"]
    python = Stage("python", ("python", *workers, *chosen), environment=environment, limit_s=3600)
    if arguments:
        return [python]
    return [Stage("native", ("native", "--schedule-random"), "debug", limit_s=3600), python]


def main(arguments: list[str]) -> int:
    rounds = int(arguments.pop(0)) if arguments and arguments[0].isdigit() else ROUNDS
    os.environ |= {"QS_GATE": "1", "QS_SWEEPS": "short", "QS_MODELS": "short"}
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
    failed: Counter[str] = Counter()
    texts: dict[str, Outcome] = {}
    begun = time.monotonic()
    try:
        for number in range(rounds):
            seed = random.SystemRandom().randrange(2**31)
            print(f"\n=== round {number + 1} of {rounds}, QS_ORDER={seed}", flush=True)
            for result in stages.play_all(round_of(arguments, seed)):
                for each in result.outcomes:
                    if each.outcome == "failed":
                        failed[each.name] += 1
                        texts[each.name] = each
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    for name, times in failed.most_common():
        print(f"\nFLAKY {name}: failed {times} of {rounds} times")
        print("\n".join(f"    {line}" for line in stages.first_lines(texts[name].text)))
    minutes = (time.monotonic() - begun) / 60
    print(f"\n{rounds} rounds in {minutes:.0f} minutes: {len(failed)} tests failed once or more")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

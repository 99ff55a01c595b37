"""Count the instructions of the hot paths and hold them against benchmarks/instructions.json.

    instructions.py PROGRAM            fail when a path takes more than it did
    instructions.py PROGRAM --write    write down what the paths take now

PROGRAM is build/release/benchmarks/instructions; it runs under callgrind. Figures are instructions
for a message. What else the machine does cannot touch them, but the compiler can: with another one
they are shown and not judged, which in CI (QS_REQUIRE=all) is a failure.
"""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

FIGURES = Path(__file__).resolve().parent.parent / "benchmarks" / "instructions.json"
TOLERANCE = 0.05

# "rep movsb" counts an instruction a byte, and which sizes libc uses it for depends on the machine.
NO_STRING_INSTRUCTIONS = ":".join(
    f"glibc.cpu.x86_rep_{name}_threshold={1 << 30}" for name in ("movsb", "stosb")
)


class Counted(NamedTuple):
    """What was counted, and with what it was compiled."""

    compiler: str
    paths: dict[str, float]


def run(*command: str) -> str:
    """Run a program and return what it says; what it complains of goes with the error."""
    environment = os.environ | {"GLIBC_TUNABLES": NO_STRING_INSTRUCTIONS}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stderr}")
    return done.stdout


def count(program: str, path: str) -> int:
    """Count the instructions of a path's function and all that it calls."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory, "callgrind.out")
        run(
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={out}",
            f"--toggle-collect=run_{path}",
            program,
            path,
        )
        for line in out.read_text(encoding="utf-8").splitlines():
            if line.startswith("summary: ") and int(line.split()[1]) > 0:
                return int(line.split()[1])
    sys.exit(f"{path}: callgrind counted nothing")


def count_all(program: str) -> Counted:
    """Count each path that the program has, a few at a time."""
    compiler, *lines = run(program).splitlines()
    messages = {path: int(number) for path, number in (line.split() for line in lines)}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = pool.map(lambda path: count(program, path), messages)
    paths = {path: round(n / messages[path], 2) for path, n in zip(messages, counts, strict=True)}
    return Counted(compiler, paths)


def judge(now: float | None, before: float | None) -> tuple[bool, str]:
    """Whether a figure may stay beside the one that was written down, and what to do about it."""
    if now is None or before is None:
        return False, "write it down with --write"
    if now > before * (1 + TOLERANCE):
        return False, f"{now / before - 1:+.0%}: SLOWER"
    if now < before * (1 - TOLERANCE):
        return True, f"{now / before - 1:+.0%}: faster; write it down with --write"
    return True, ""


def compare(now: Counted, before: Counted) -> bool:
    """Print the figures side by side; whether all of them may stay."""
    print(f"{'instructions a message':22}{'now':>10}{'before':>10}")
    good = True
    for path in now.paths | before.paths:
        figures = now.paths.get(path), before.paths.get(path)
        may_stay, advice = judge(*figures)
        good = good and may_stay
        shown = "".join(f"{'-' if value is None else f'{value:.2f}':>10}" for value in figures)
        print(f"{path:22}{shown}  {advice}".rstrip())
    if now.compiler == before.compiler:
        return good
    print(f"compiled by {now.compiler}; the figures before are of {before.compiler}: not judged")
    return os.environ.get("QS_REQUIRE") != "all"


def main(arguments: list[str]) -> None:
    match arguments:
        case [program, "--write"]:
            text = json.dumps(count_all(program)._asdict(), indent=4)
            FIGURES.write_text(text + "\n", encoding="utf-8")
        case [program]:
            before = Counted(**json.loads(FIGURES.read_text(encoding="utf-8")))
            if not compare(count_all(program), before):
                sys.exit(f"these are not the figures of {FIGURES.name}")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])

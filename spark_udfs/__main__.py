"""``python -m spark_udfs demo``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

_NEEDED = ("polars", "pyarrow", "pyspark", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status: 0, 1 when numbers disagree, 2 when it could not be run."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_udfs", description="Spark in front of a pyqstore store."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo", help="336,776 flights through queues, a streaming query and a stream; three kills"
    )
    demo.add_argument(
        "--path", type=Path, help="directory for the store, kept (default: a temporary one)"
    )
    demo.add_argument(
        "--keep", action="store_true", help="keep the temporary store and say where it is"
    )
    # What the demonstration runs, and kills.
    step = commands.add_parser("step")
    step.add_argument("name")
    for name in ("--path", "--scratch"):
        step.add_argument(name, type=Path, required=True)
    given = parser.parse_args(arguments)

    try:
        import pyqstore  # noqa: F401 - is it whole?
    except ImportError:
        # In a clone, the source folder of that name hides the package that is installed.
        if sys.flags.safe_path or arguments is not None:
            raise
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, "-P", "-m", "spark_udfs", *sys.argv[1:]])
    try:
        from . import demo as demonstration
        from .flights import DemoError, run_step
        from .session import JavaNotFoundError

        try:
            if given.command == "step":
                run_step(given.name, given.path, given.scratch)
                return 0
            # Asked to end, it still stops what it started and removes what it made.
            for end in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(end) is signal.SIG_DFL:  # not under nohup
                    signal.signal(end, lambda number, _: sys.exit(128 + number))
            return demonstration.run(given.path, keep=given.keep)
        except (DemoError, JavaNotFoundError) as error:
            print(f"demo: {error}", file=sys.stderr)
            return 2
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] in _NEEDED:
            print(f"demo: {error.name} is missing: pip install 'pyqstore[demo]'", file=sys.stderr)
            return 2
        raise


if __name__ == "__main__":
    sys.exit(main())

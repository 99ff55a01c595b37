"""``python -m spark_udfs demo``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status: 0, 1 when numbers disagree, 2 when it could not be run."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_udfs", description="Spark in front of a pyqstore store."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo", help="336,776 flights through Spark, the store, a kill, and back"
    )
    demo.add_argument(
        "--path", type=Path, help="directory for the store, kept (default: a temporary one)"
    )
    demo.add_argument(
        "--keep", action="store_true", help="keep the temporary store and say where it is"
    )
    # The process that the demonstration kills.
    child = commands.add_parser("publish-half")
    for name in ("--path", "--csv", "--scratch"):
        child.add_argument(name, type=Path, required=True)
    child.add_argument("--pipe", type=int, required=True)
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
        from .flights import DemoError
        from .session import JavaNotFoundError

        if given.command == "publish-half":
            demonstration.publish_half(given.path, given.csv, given.scratch, given.pipe)
            return 0
        # Asked to end, it still stops what it started and removes what it made.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        try:
            return demonstration.run(given.path, keep=given.keep)
        except (DemoError, JavaNotFoundError) as error:
            print(f"demo: {error}", file=sys.stderr)
            return 2
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] in ("pyspark", "pyarrow", "rich"):
            print(f"demo: {error.name} is missing: pip install 'pyqstore[demo]'", file=sys.stderr)
            return 2
        raise


if __name__ == "__main__":
    sys.exit(main())

"""The command line: ``pyqstore``, or ``python -m pyqstore``.

Results go to stdout, as text for people or, with ``--json``, as JSON; errors are one line on
stderr, where progress is shown, too, if that is a terminal.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import sys
from collections.abc import Iterator
from typing import Any

import click

from ..terminal import EXIT_FAILED, errors_told, fail, visible

__all__ = ["main"]

_log = logging.getLogger("pyqstore")
_EXIT_INTERRUPTED = 130  # as a shell has it: 128 and the number of SIGINT
_BENCH_NEEDS = ("jinja2", "matplotlib", "psutil")
# Where each command is: the module of the one that is asked for is imported, and no other.
_MODULES = {
    "..serve.command": ("serve",),
    "..serve.user_command": ("user",),
    ".archives": ("archive",),
    ".backups": ("backup", "backups", "restore"),
    ".copies": ("snapshot",),
    ".defining": ("definitions",),
    ".looking": ("inspect", "queues", "stats"),
    ".messages": ("consume", "dump", "move", "peek", "publish", "purge"),
    ".salvaging": ("salvage",),
    ".shovels": ("shovel",),
    ".top": ("top",),
    ".topology": ("bind", "checkpoint", "declare", "delete", "unbind"),
    ".transfer": ("export", "import"),
    ".verifying": ("verify",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
_EPILOG = """Exit status: 0 done; 1 the store is damaged, or something of it is lost; 2 wrong
arguments; 3 anything else (no store, no such queue, an input/output error).

A store may be open in another process of this user: that does what is asked.  Nothing else has to
be said for it."""


@contextlib.contextmanager
def _usage() -> Iterator[None]:
    """What is wrong with arguments repeats them, and a script may take them from a name."""
    try:
        yield
    except click.ClickException as error:
        error.message = "\n".join(map(visible, error.message.split("\n")))  # type: ignore[misc]
        raise


class Commands(click.Group):
    """Commands that are imported when they are asked for, and whose errors a terminal can be
    shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_MODULE_OF})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULE_OF:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(_MODULE_OF[cmd_name], __name__)
        command: click.Command = getattr(module, "import_" if cmd_name == "import" else cmd_name)
        return command

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with _usage():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """The command's own arguments are read here.  What no command tells is told here: status 1
        would say that the store is damaged."""
        try:
            with _usage():
                return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            sys.exit(_EXIT_INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, BrokenPipeError):
            raise  # click ends with them
        except Exception as error:
            _log.debug("unforeseen", exc_info=True)
            fail(f"unforeseen, a fault of pyqstore: {error!r}", EXIT_FAILED)


@click.group(cls=Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pyqstore")
def main() -> None:
    """Look into pyqstore stores and work with them, serve them, and measure pyqstore."""


# What `pyqstore bench` takes is known to the extra alone: all of it is passed on.
@main.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(arguments: tuple[str, ...]) -> None:
    """Measure pyqstore beside what the disk does alone (pyqstore[bench])."""
    missing = [name for name in _BENCH_NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        fail(f"{', '.join(missing)} missing: pip install 'pyqstore[bench]'", EXIT_FAILED)
    from ..bench.command import bench as workloads

    with errors_told():
        workloads.main(list(arguments), prog_name="pyqstore bench")

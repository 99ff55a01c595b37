"""The command ``pyqstore snapshot``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from .shared import ask_store, directory, json_option, print_report, size

__all__ = ["snapshot"]


@click.command()
@directory
@click.argument("out", type=click.Path(path_type=Path))
@json_option
def snapshot(directory: Path, out: Path, as_json: bool) -> None:
    """Copy the store, as it is at one moment, to the new directory OUT: a store like any other.

    It may be open, and goes on meanwhile.  What never changes is a hard link where OUT is on the
    same file system.
    """
    report = ask_store(directory, "snapshot", {"to": os.path.abspath(out)})
    text = (
        f"{report['files']} files, {report['linked']} of them linked, {size(report['bytes'])}"
        f" copied to {out}"
    )
    print_report(report, as_json, text)

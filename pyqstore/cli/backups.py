"""The commands ``pyqstore backup``, ``backups`` and ``restore``."""

from __future__ import annotations

import secrets
import shutil
import sys
from pathlib import Path

import click

from ..terminal import EXIT_DAMAGE, complain, errors_told, visible
from .shared import (
    ask_store,
    directory,
    json_option,
    print_json,
    print_report,
    progress_shown,
    size,
)

__all__ = ["backup", "backups", "restore"]

_target = click.argument("target")


@click.command()
@directory
@_target
@click.option("--keep", type=click.IntRange(min=1), help="Remove older backups than so many.")
@click.option(
    "--temporary",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Where a snapshot is made meanwhile; else beside the store, where it takes least.",
)
@json_option
def backup(
    directory: Path, target: str, keep: int | None, temporary: Path | None, as_json: bool
) -> None:
    """Back the store up, open or not, to TARGET: a directory, or a URL as s3://BUCKET/PATH.

    What TARGET has already is not sent again.  Each store has a TARGET of its own.
    """
    from ..backups import Target, back_up, prune

    folder = directory.resolve()
    copy = (temporary or folder.parent) / f".{folder.name}.{secrets.token_hex(8)}.backup"
    with errors_told():
        place = Target(target, create=True)
    try:
        ask_store(directory, "snapshot", {"to": str(copy.absolute())})
        with errors_told(), progress_shown("backing up") as progress:
            made = back_up(copy, place, progress)
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    removed: list[str] = []
    if made.damages:
        complain(
            f"{made.name} is of a damaged store ({made.damages} places: pyqstore verify names them)"
            f"{'' if keep is None else '; older backups stay'}"
        )
    elif keep is not None:
        with errors_told():
            removed = prune(place, keep)
    text = (
        f"{made.name}: {made.files} files of {size(made.bytes)}; {made.sent} of them were new, and"
        f" {size(made.sent_bytes)} sent to {target}"
    )
    if removed:
        text += f"; older backups removed: {len(removed)}"
    print_report({**made._asdict(), "removed": removed}, as_json, text)
    sys.exit(EXIT_DAMAGE if made.damages else 0)


@click.command()
@_target
@json_option
def backups(target: str, as_json: bool) -> None:
    """List the backups in TARGET, the oldest first."""
    from ..backups import Target
    from ..backups import backups as listed

    with errors_told():
        names = listed(Target(target))
    if as_json:
        print_json(names)
    else:
        for name in names:
            click.echo(visible(name))


@click.command()
@_target
@directory
@click.option("--backup", "name", help="Which; else the newest.")
@json_option
def restore(target: str, directory: Path, name: str | None, as_json: bool) -> None:
    """Make a store of a backup in TARGET, in the new directory DIRECTORY."""
    from ..backups import Target
    from ..backups import restore as restored

    with errors_told(), progress_shown("restoring") as progress:
        found, verified = restored(Target(target), directory, name, progress)
    for place in verified.damage:
        complain(place.text)
    text = f"{found.name}: {len(found.files)} files of {size(found.size)} in {directory}"
    report = {
        "name": found.name,
        "files": len(found.files),
        "bytes": found.size,
        "damages": verified.damages,
    }
    print_report(report, as_json, text)
    sys.exit(EXIT_DAMAGE if verified.damages else 0)

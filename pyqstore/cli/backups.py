"""The commands ``pyqstore backup``, ``backups`` and ``restore``."""

from __future__ import annotations

import secrets
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..findings import Verification
from ..places import place_of
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

if TYPE_CHECKING:
    from ..backups import Target

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


def _moment(text: str) -> datetime:
    """A type of options: a time, or how long ago."""
    try:
        place = place_of(text)
    except ValueError:
        place = text
    if isinstance(place, timedelta):
        return datetime.now(UTC) - place
    if not isinstance(place, datetime):
        raise click.BadParameter(f"{text!r} is no time such as 2026-01-31T12:00, and no age as 1h")
    return place


@click.command()
@_target
@directory
@click.option("--backup", "name", help="Which of the backups; else the newest.")
@click.option(
    "--until",
    type=_moment,
    metavar="TIME|AGE",
    help="Of an archive: as the store was then; else at the last moment that is archived.",
)
@json_option
def restore(
    target: str, directory: Path, name: str | None, until: datetime | None, as_json: bool
) -> None:
    """Make a store of an archive or a backup in TARGET, in the new directory DIRECTORY.

    Where TARGET has both, --backup chooses the backup.
    """
    from ..archives import bases
    from ..backups import Target

    if name is not None and until is not None:
        raise click.UsageError("--until is of an archive, and --backup of a backup: leave one out")
    with errors_told():
        place = Target(target)
        is_archive = name is None and (until is not None or bool(bases(place)))
    if is_archive:
        _restore_archive(place, directory, until, as_json)
    _restore_backup(place, directory, name, as_json)


def _restore_archive(
    target: Target, directory: Path, until: datetime | None, as_json: bool
) -> NoReturn:
    from ..archives import restore as restored

    with errors_told(), progress_shown("restoring") as progress:
        done = restored(target, directory, until, progress)
    moment = done.moment.isoformat()
    text = f"{done.base.name} and {done.parts} parts behind it, as of {moment}, in {directory}"
    report = {"name": done.base.name, "parts": done.parts, "moment": moment, "lsn": done.lsn}
    _end(done.verification, report, as_json, text)


def _restore_backup(target: Target, directory: Path, name: str | None, as_json: bool) -> NoReturn:
    from ..backups import restore as restored

    with errors_told(), progress_shown("restoring") as progress:
        found, verified = restored(target, directory, name, progress)
    text = f"{found.name}: {len(found.files)} files of {size(found.size)} in {directory}"
    report = {"name": found.name, "files": len(found.files), "bytes": found.size}
    _end(verified, report, as_json, text)


def _end(verified: Verification, report: dict[str, Any], as_json: bool, text: str) -> NoReturn:
    for place in verified.damage:
        complain(place.text)
    print_report({**report, "damages": verified.damages}, as_json, text)
    sys.exit(EXIT_DAMAGE if verified.damages else 0)

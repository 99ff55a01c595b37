"""The command ``pyqstore verify``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..control.wire import Report
from ..terminal import EXIT_DAMAGE, visible
from .shared import ask_store, directory, json_option, print_json, progress_shown

__all__ = ["verify"]


@click.command()
@directory
@json_option
def verify(directory: Path, as_json: bool) -> None:
    """Read every file that the store needs and check every checksum.

    Changes nothing.  Exit status 1 when anything is damaged: file and offset of each place are
    printed.  Of a store that is open a snapshot is verified, which its owner makes beside it, after
    a checkpoint, and removes again.
    """
    with progress_shown("verifying") as progress:

        def told(report: Report, _payload: bytes) -> None:
            progress(report["done"], report["total"])

        found = ask_store(directory, "verify", told=told)
    if as_json:
        print_json(found)
    else:
        for place in found["damage"]:
            click.echo(visible(place["text"]))
        damages = found["damages"]
        click.echo(
            f"{damages or 'no'} damaged place{'' if damages == 1 else 's'} in"
            f" {found['queues']} queues, {found['checkpoint_records']} checkpoint records,"
            f" {found['journal_records']} journal records, {found['segments']} segments,"
            f" {found['bodies']} bodies"
        )
        if damages:
            click.echo(visible(f"pyqstore salvage {directory} OUT copies what is whole"))
    sys.exit(EXIT_DAMAGE if found["damages"] else 0)

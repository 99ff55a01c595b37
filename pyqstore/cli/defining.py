"""The commands ``pyqstore definitions import`` and ``pyqstore definitions export``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..serve.definitions import parse_definitions
from ..serve.user_file import read_json
from ..serve.user_list import located
from ..terminal import complain, errors_told, visible_json
from .shared import directory, json_option, print_report, reached
from .writing import check_free, new_file

__all__ = ["definitions"]

_KINDS = ("exchanges", "queues", "bindings")


@click.group()
def definitions() -> None:
    """Take over what another server had, or write it for one: exchanges, queues and bindings."""


@definitions.command("import")
@directory
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--vhost", default="/", show_default=True, help="Which of FILE to take.")
@json_option
def import_definitions(directory: Path, file: Path, vhost: str, as_json: bool) -> None:
    """Declare what FILE has, which RabbitMQ wrote (export_definitions), in the store in DIRECTORY.

    A store that is not there is made.  When anything cannot be declared, nothing is.  What is there
    already stays, and may be declared once more.  Users come with pyqstore user import.
    """
    with errors_told():
        with located(str(file)):
            document = read_json(file)
            found = parse_definitions(document, vhost)
            counts = [len(found.exchanges), len(found.queues), len(found.bindings)]
            if not any(counts):
                raise ValueError(f"it has no exchanges, queues or bindings of vhost {vhost!r}")
            payload = json.dumps(document).encode()
            report = reached(directory, "define", {"vhost": vhost}, asked=lambda _: ({}, payload))
        for what in found.passed_over:
            complain(f"{file}: {what} is passed over: there are no policies or parameters here")
        for told in report["unknown"]:
            complain(f"{file}: {told}")
        others = f"; {found.elsewhere} of other virtual hosts passed over" * bool(found.elsewhere)
        numbers = dict(zip(_KINDS, counts, strict=True))
        passed = {"of_other_vhosts": found.elsewhere}
        print_report(numbers | passed, as_json, _counted(numbers) + others)


@definitions.command("export")
@directory
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--vhost", default="/", show_default=True, help="What the store is in FILE.")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@json_option
def export_definitions(directory: Path, file: Path, vhost: str, force: bool, as_json: bool) -> None:
    """Write what is declared in the store in DIRECTORY to FILE, as JSON that RabbitMQ imports
    (import_definitions), and pyqstore definitions import; "-" is the standard output.

    Queues of one connection alone, messages and users are not in it.
    """
    with errors_told():
        if str(file) != "-":
            check_free(file, force)
        report = reached(directory, "definitions")
        document = {
            "vhosts": [{"name": vhost}],
            **{
                kind: [{**entry, "vhost": vhost} for entry in entries]
                for kind, entries in report.items()
            },
        }
        with new_file(file, force) as out:
            out.write(visible_json(json.dumps(document, indent=1)).encode() + b"\n")
        if str(file) != "-":
            numbers = {kind: len(report[kind]) for kind in _KINDS}
            print_report(numbers, as_json, _counted(numbers))


def _counted(numbers: dict[str, int]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in numbers.items())

"""Programs on clients of other languages, in ``programs``: what they see of a listener is what they
see of RabbitMQ 3.10."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from .. import java_program
from ..differential.broker import Broker
from . import suites
from .playing import SECONDS, Fetched, played

PROGRAMS = Path(__file__).with_name("programs")
POM = PROGRAMS / "pom.xml"
Prepared = Callable[[Path, Fetched], list[str]]


def java(name: str) -> Prepared:
    """A program on RabbitMQ's Java client, or on Spring."""
    return lambda folder, _: java_program.command(PROGRAMS / name, POM, folder)


def c(folder: Path, fetched: Fetched) -> list[str]:
    """A program on rabbitmq-c."""
    compiler, flags = fetched(suites.c_client)
    status, said = played(
        *(compiler, "-Wall", "-o", folder / "confirm", PROGRAMS / "confirm.c"),
        *shlex.split(flags),
        cwd=folder,
    )
    assert status == 0, said
    return [str(folder / "confirm")]


def node(folder: Path, fetched: Fetched) -> list[str]:
    """A program on amqplib; node looks for packages beside it."""
    program, packages = fetched(suites.node_clients)
    (folder / "node_modules").symlink_to(packages)
    shutil.copy(PROGRAMS / "amqplib.js", folder)
    return [program, "amqplib.js"]


def celery(folder: Path, fetched: Fetched) -> list[str]:
    """Tasks of Celery, and their worker."""
    python = fetched(suites.python_of_celery)
    shutil.copy(PROGRAMS / "celery_tasks.py", folder)
    return ["env", f"PYTHONPATH={folder}", str(python), "celery_tasks.py"]


def seen(command: list[str], port: int, folder: Path) -> str:
    """What a program tells of the server at a port."""
    errors = folder / "errors"
    with errors.open("wb") as file:
        status, told = played(*command, str(port), cwd=folder, stderr=file)
    assert status == 0, told + errors.read_text(errors="replace")[-8000:]
    return told


# A message that is nacked alone: RabbitMQ calls it all that are outstanding, pyqstore one.
KNOWN = {"NAck.multiple=0": "NAck.multiple=1"}


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS + 300)
@pytest.mark.parametrize(
    "prepared",
    [java("Acknowledgements.java"), java("Reliability.java"), c, node, celery],
    ids=["java", "spring", "c", "node", "celery"],
)
def test_a_program_sees_what_it_sees_of_rabbitmq(
    prepared: Prepared, port: int, broker: Broker, fetched: Fetched, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.mkdir()
    command = prepared(program, fetched)
    told = seen(command, port, program)
    for ours, theirs in KNOWN.items():
        told = told.replace(ours, theirs)
    assert told.splitlines() == seen(command, broker.port, program).splitlines()

"""Programs on clients of other languages, in ``programs``: what they see of ``pyqstore serve`` is
what they see of RabbitMQ 3.10.  Among them are the listings of the founding documents."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .. import java_program
from ..differential.broker import Broker
from ..serving import served
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


def seen(command: list[str], port: int, folder: Path) -> list[str]:
    """What a program tells of the server at a port, line by line."""
    errors = folder / "errors"
    with errors.open("wb") as file:
        status, told = played(*command, str(port), cwd=folder, stderr=file)
    assert status == 0, told + errors.read_text(errors="replace")[-8000:]
    return told.splitlines()


# A message that is nacked alone: RabbitMQ calls it all that are outstanding, pyqstore one.
KNOWN = {"NAck.multiple=0": "NAck.multiple=1"}
ALL = {
    "java": java("Acknowledgements.java"),
    "consumers": java("Consumers.java"),
    "spring": java("Reliability.java"),
    "c": c,
    "node": node,
    "celery": celery,
}
# Each listing of the founding documents by the part of a program that does the same
# (benchmarks/laboratory/SEEDS.md).
ANSWERS = ("acknowledge one", "acknowledge up to", "discard", "requeue", "requeue up to")
LISTINGS = {
    "000 java, publish many and wait": "java",
    "000 c, publish with immediate": "c",
    "000 c, read acks, nacks and returns": "c",
    **{
        f"001 {language}, {answer}": "consumers"
        for language in ("java", ".net")
        for answer in ANSWERS
    },
    "003 spring, not persistent": "spring",
    "003 spring, lazy queue": "spring",
    "003 spring, acknowledge by hand": "spring",
    "003 spring, prefetch 1": "spring",
    "003 spring, transaction": "spring",
    "003 spring, confirm callback": "spring",
    "003 spring, return callback": "spring",
}
Both = tuple[list[str], list[str]]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Of ``pyqstore serve``."""
    with served(tmp_path_factory.mktemp("served") / "store", "--listen", "127.0.0.1:0") as server:
        yield int(server.addresses()["amqp"].rpartition(":")[2])


@pytest.fixture(scope="module")
def told() -> dict[str, Both]:
    """By program, what it told of both: for the tests that come later."""
    return {}


@pytest.fixture
def tell(
    told: dict[str, Both], port: int, broker: Broker, fetched: Fetched, tmp_path: Path
) -> Callable[[str], Both]:
    """What a program tells of ``pyqstore serve``, and of RabbitMQ."""

    def of(name: str) -> Both:
        if name not in told:
            folder = tmp_path / "program"
            folder.mkdir()
            command = ALL[name](folder, fetched)
            ours = [KNOWN.get(line, line) for line in seen(command, port, folder)]
            told[name] = (ours, seen(command, broker.port, folder))
        return told[name]

    return of


def part(lines: list[str], name: str) -> list[str]:
    """Of what a program told, what stands below a heading."""
    found = re.search(rf"^== {re.escape(name)}\n((?:(?!== ).*\n)+)", "\n".join([*lines, ""]), re.M)
    assert found is not None, "\n".join(lines)
    return found[1].splitlines()


pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * SECONDS + 300)]


@pytest.mark.parametrize("program", ALL)
def test_a_program_sees_what_it_sees_of_rabbitmq(program: str, tell: Callable[[str], Both]) -> None:
    ours, theirs = tell(program)
    assert ours == theirs


@pytest.mark.parametrize("listing", LISTINGS)
def test_a_listing_of_the_documents_sees_what_it_sees_of_rabbitmq(
    listing: str, tell: Callable[[str], Both]
) -> None:
    ours, theirs = tell(LISTINGS[listing])
    assert part(ours, listing) == part(theirs, listing)


def test_each_part_that_is_of_a_document_is_a_listing(tell: Callable[[str], Both]) -> None:
    headings = {
        line.removeprefix("== ")
        for program in sorted(set(LISTINGS.values()))
        for line in tell(program)[0]
        if re.match(r"== \d", line)
    }
    assert headings == LISTINGS.keys()

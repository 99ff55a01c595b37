"""Command lines in documents: the commands, options and arguments that they name are there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from pyqstore.bench.command import bench
from pyqstore.cli import main

from ..documents import ROOT

DOCUMENTS = [
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "benchmarks/*.md", "examples/**/*.md")
    for path in sorted(ROOT.glob(pattern))
]
ENDS = {"|", ">", ">>", "<", "&", "&&", ";", "2>"}  # of a command, to a shell


def lines_of(document: str) -> Iterator[str]:
    """Of blocks that are no Python, without the ends of lines that go on."""
    text = (ROOT / document).read_text()
    for language, block in re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, re.M | re.S):
        if language in ("", "sh", "bash", "console"):
            for line in block.replace("\\\n", " ").splitlines():
                if line.strip().startswith("pyqstore "):
                    yield line.strip()


def quotes_of(document: str) -> Iterator[str]:
    """What stands in a sentence."""
    text = re.sub(r"^ *```.*?^ *```", "", (ROOT / document).read_text(), flags=re.M | re.S)
    for quote in re.findall(r"`pyqstore ([^`]+)`", text):
        yield re.sub(r"\s+", " ", quote)


def command_of(words: list[str]) -> tuple[click.Command, click.Context, list[str]]:
    """The command that the first words name, and the other words.  UsageError: there is none."""
    command: click.Command = main
    context = click.Context(main, info_name="pyqstore")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            raise click.UsageError(f"there is no command {words[0]!r}")
        command = bench if command is main and words[0] == "bench" else found
        context = click.Context(command, info_name=words[0], parent=context)
        words = words[1:]
    return command, context, words


def check(words: list[str]) -> None:
    """UsageError: an option or an argument is wrong, or missing."""
    command, context, rest = command_of(words)
    values, more, _ = command.make_parser(context).parse_args(list(rest))
    if more:
        raise click.UsageError(f"{' '.join(more)!r} is too much")
    for parameter in command.params:
        if parameter.required and parameter.envvar is None:
            assert parameter.name is not None
            # What is missing is None, or a mark of click's own, by its version.
            if not isinstance(values.get(parameter.name), str | tuple):
                raise click.UsageError(f"{parameter.name} is missing")


def words_of(line: str) -> list[str]:
    words = shlex.split(line, comments=True)[1:]
    return words[: next((at for at, word in enumerate(words) if word in ENDS), len(words))]


def is_synopsis(line: str) -> bool:
    """An outline of what there is, for people."""
    return "[" in line and "]" in line


@pytest.mark.parametrize("document", DOCUMENTS)
def test_command_lines_of_blocks_can_be_typed(document: str) -> None:
    for line in lines_of(document):
        if is_synopsis(line):
            continue
        try:
            check(words_of(line))
        except click.UsageError as error:
            pytest.fail(f"{document}: {line}: {error.format_message()}")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_in_sentences_are_there(document: str) -> None:
    """They leave arguments out."""
    for quote in quotes_of(document):
        try:
            command, _, rest = command_of(re.sub(r"(\w+)(\|\w+)+", r"\1", quote).split())
        except click.UsageError as error:
            pytest.fail(f"{document}: pyqstore {quote}: {error.format_message()}")
        known = {"-h", "--help"}
        for parameter in command.params:
            known |= {*parameter.opts, *parameter.secondary_opts}
        named = {word.partition("=")[0] for word in rest if re.match("--?[a-z]", word)}
        assert named <= known, f"{document}: pyqstore {quote}"
        places = [each.nargs for each in command.params if isinstance(each, click.Argument)]
        if not any(word.startswith("-") for word in rest) and -1 not in places:
            given = rest[: rest.index(">")] if ">" in rest else rest
            assert len(given) <= sum(places), f"{document}: pyqstore {quote}"


def test_what_is_not_there_is_found() -> None:
    for line in (
        "pyqstore none",
        "pyqstore peek jobs.qs jobs --none",
        "pyqstore peek jobs.qs jobs more",
        "pyqstore peek jobs.qs",
        "pyqstore user ad jobs.qs ann",
    ):
        with pytest.raises(click.UsageError):
            check(words_of(line))
    check(words_of("pyqstore peek jobs.qs jobs | head"))

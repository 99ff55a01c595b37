"""What others named cannot steer the terminal of whoever looks."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pyqstore
from pyqstore.terminal import visible

EVIL = ":smile:[bold]\x1b]0;owned\x07\x1b[2J\x7f\x9b31m\u202egnp\u2066\u200b\u061c\U000e0041[/bold]"
FORBIDDEN = "\x1b\x07\x7f\x9b\u202e\u2066\u200b\u061c\U000e0041"


@pytest.fixture
def evil(path: Path) -> Path:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare(EVIL, durable=True)
        properties = pyqstore.Properties(delivery_mode=2, type=EVIL, headers={EVIL: EVIL})
        channel.basic_publish("", EVIL, EVIL, properties)
    return path


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit status, what stdout gets, and what stderr, a terminal, gets."""
    reader, writer = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "pyqstore", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=writer,
        env={**os.environ, "TERM": "dumb", "COLUMNS": "300", "PYTHONIOENCODING": "utf-8"},
    ) as process:
        os.close(writer)
        assert process.stdout is not None
        output = process.stdout.read()
        told = b""
        while True:
            try:
                chunk = os.read(reader, 4096)
            except OSError:
                break
            if not chunk:
                break
            told += chunk
    os.close(reader)
    return process.returncode, output.decode(), told.decode()


def without_drawing(told: str) -> str:
    """Without what the progress bar itself says to the terminal."""
    return re.sub(r"\x1b\[(\?25[hl]|[0-9;]*[mA]|[12]K)", "", told)


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect"],
        ["inspect", "--json"],
        ["stats"],
        ["stats", "--json"],
        ["dump", EVIL],
        ["dump", EVIL + "no"],
        ["verify"],
    ],
)
def test_escapes_in_names_never_reach_a_terminal(evil: Path, arguments: list[str]) -> None:
    command, *rest = arguments
    _, output, told = run(command, evil, *rest)
    text = output + without_drawing(told)
    assert text
    assert not [letter for letter in FORBIDDEN if letter in text]


@pytest.mark.parametrize(
    "arguments",
    [[EVIL], ["inspect", "a", EVIL], ["inspect", "-" + EVIL], ["dump", "a", "b", "--limit", EVIL]],
)
def test_escapes_in_wrong_arguments_never_reach_a_terminal(arguments: list[str]) -> None:
    status, output, told = run(*arguments)
    assert status == 2
    assert not output
    assert "Error: " in told
    assert not [letter for letter in FORBIDDEN if letter in told]


def test_a_name_is_shown_as_it_is_and_markup_means_nothing(evil: Path) -> None:
    status, text, _ = run("inspect", evil)
    assert status == 0
    assert visible(EVIL) in text
    assert ":smile:[bold]" in text


def test_a_dump_goes_to_stdout_while_stderr_is_a_terminal(evil: Path) -> None:
    status, output, told = run("dump", evil, EVIL)
    assert status == 0
    assert output.count("\n") == 1
    assert "routing_key" not in told


def test_json_stays_exact(evil: Path) -> None:
    status, text, _ = run("dump", evil, EVIL)
    assert status == 0
    line = json.loads(text)
    assert (line["routing_key"], line["body"]) == (EVIL, EVIL)
    assert line["properties"]["headers"] == {EVIL: EVIL}
    assert list(json.loads(run("inspect", evil, "--json")[1])["queues"]) == [EVIL]


@pytest.mark.parametrize("text", ["orders", "größe", "注文", "a b", "émoji 🎉", "back\\slash"])
def test_what_can_be_seen_is_left_alone(text: str) -> None:
    assert visible(text) == text


def test_bytes_that_are_no_text_are_escaped() -> None:
    name = b"a\xff\n".decode("utf-8", "surrogateescape")
    assert visible(name) == "a\\udcff\\x0a"

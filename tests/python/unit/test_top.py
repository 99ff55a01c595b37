"""``pyqstore top``: pictures are drawn of reports, and read as text; the command runs on a store
that is open or closed, and at the other end of a pseudo-terminal."""

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import ConsoleDimensions

import pyqstore
from pyqstore.cli import main
from pyqstore.cli.picture import picture, rates_of
from pyqstore.control.reaching import reach
from pyqstore.paper import Paper

NAMES = ["\x1b[2Jq", "[red]x[/red]", ":smile:", "a" * 200, "b"]


def run(*arguments: object) -> str:
    done = CliRunner().invoke(main, ["top", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.output


def report_of(path: Path) -> dict[str, Any]:
    return reach(path, "overview")


def drawn(report: dict[str, Any], before: Any = None, sort: str = "ready", *size: int) -> list[str]:
    paper = Paper(width=size[0] if size else 1000, markup=False, emoji=False, highlight=False)
    rates = rates_of(before, report)
    with paper.capture() as captured:
        paper.print(picture(report, rates, sort, ConsoleDimensions(*size) if size else None))
    return captured.get().splitlines()


@pytest.fixture
def reports(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of two moments, as if two seconds had been between them."""
    with pyqstore.open(path) as store, store.channel() as channel:
        for number, name in enumerate(NAMES):
            channel.queue_declare(name, durable=True)
            store.queue(name).put_many([b"x"] * number)
        store.stream("log")
        before = report_of(path)
        store.queue("b").put_many([b"x"] * 7)
        for number in range(6):
            channel.basic_get(NAMES[1] if number == 5 else "b", auto_ack=True)
        store.queue("new").put_many([b"x"] * 2)
        after = report_of(path)
    after["monotonic_s"] = before["monotonic_s"] + 2
    return before, after


def test_rates_are_differences_a_second(reports: tuple[dict[str, Any], dict[str, Any]]) -> None:
    before, after = reports
    rates = rates_of(before, after)
    assert rates is not None
    assert rates["messages_published"] == 4.5
    assert rates["messages_delivered"] == 3.0
    assert rates["queues"]["b"] == {"publish": 3.5, "deliver_get": 2.5, "ack": 0.0}
    assert rates["queues"]["new"]["publish"] == 1.0
    assert rates_of(None, after) is None
    assert rates_of({**before, "pid": 1}, after) is None  # counters of another process
    assert rates_of(after, after) is None


@pytest.mark.parametrize(
    ("sort", "first"),
    [("ready", ["b", "a" * 200]), ("rate", ["b", "new"]), ("name", [":smile:", "[red]x[/red]"])],
)
def test_queues_are_sorted_and_their_names_are_text(
    reports: tuple[dict[str, Any], dict[str, Any]], sort: str, first: list[str]
) -> None:
    before, after = reports
    lines = drawn(after, before, sort)
    assert lines[4].split()[:2] == ["queue", "ready"]
    names = [line.split()[0] for line in lines[5:] if not line.startswith("\\x1b[2Jq ")]
    assert names[:2] == first
    assert "\x1b" not in "".join(lines)
    for name in ("\\x1b[2Jq", "[red]x[/red]", ":smile:", "log (stream)"):
        assert any(line.startswith(name + " ") for line in lines), name


def test_picture_fits_the_terminal_and_cuts_no_number(
    reports: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    before, after = reports
    after["queues"]["b"]["ready"] = 123_456_789
    for width in (16, 20, 40, 60, 80, 120):
        for height in (8, 9, 10, 30):
            lines = drawn(after, before, "ready", width, height)
            assert len(lines) <= max(height, 9)
            assert max(map(len, lines)) <= width
            assert "123456789" in "\n".join(lines)
    assert drawn(after, before, "ready", 80, 9)[-1] == "and 4 more, by ready"
    assert "queue" in drawn(after, before, "ready", 20, 30)[4]


def test_once_prints_all_queues_and_rates_of_an_open_store(path: Path) -> None:
    with pyqstore.open(path) as store:
        for number in range(60):
            store.queue(f"q{number:02}").put(b"x")
        text = run(path, "--once", "--interval", 0.1, "--sort", "name")
        lines = text.splitlines()
        assert [line.split()[0] for line in lines[5:]] == [f"q{number:02}" for number in range(60)]
        assert "published 0/s" in text
        assert f"process {os.getpid()}" in text
        found = json.loads(run(path, "--json", "--interval", 0.1))
        assert found["rates"]["messages_published"] == 0
        assert found["queues"]["q00"]["ready"] == 1


def test_closed_store_is_shown_once_without_rates(path: Path) -> None:
    with pyqstore.open(path) as store:
        store.queue("q").put(b"x")
    text = run(path)
    assert "no process has the store open to write" in text
    assert "published -" in text
    assert json.loads(run(path, "--json").partition("\n")[2])["rates"] is None
    done = CliRunner().invoke(main, ["top", str(path / "nowhere")])
    assert done.exit_code == 3


class Terminal:
    """A process at the other end of a pseudo-terminal."""

    def __init__(self, *words: object) -> None:
        self.end, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 80, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pyqstore", *map(str, words)],
            stdin=other,
            stdout=other,
            stderr=other,
            env={**os.environ, "TERM": "xterm"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # Ctrl-C reaches it
        )
        os.close(other)
        self.text = ""

    def shows(self, wanted: str) -> None:
        """Return when it has written that."""
        end = time.monotonic() + 60
        while wanted not in self.text:
            assert time.monotonic() < end, self.text
            if select.select([self.end], [], [], 1)[0]:
                self.text += os.read(self.end, 1 << 16).decode()

    def is_as_it_was(self) -> bool:
        """Whether it shows what is typed, and waits for the end of a line."""
        wanted = termios.ECHO | termios.ICANON
        return bool(termios.tcgetattr(self.end)[3] & wanted == wanted)

    def ended(self) -> int:
        """How it ended."""
        with contextlib.suppress(OSError):
            while data := os.read(self.end, 1 << 16):
                self.text += data.decode()
        assert self.is_as_it_was()
        os.close(self.end)
        return self.process.wait(60)


@pytest.fixture
def open_store(path: Path) -> Iterator[pyqstore.Store]:
    with pyqstore.open(path) as store:
        store.queue("here").put_many([b"x"] * 41)
        yield store


@pytest.mark.parametrize(
    ("how", "status"), [("q", 0), ("\x03", 130), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_live_view_shows_what_changes_and_leaves_the_terminal_as_it_was(
    open_store: pyqstore.Store, how: Any, status: int
) -> None:
    terminal = Terminal("top", open_store.path, "--interval", 0.1)
    terminal.shows(" 41 ")
    assert not terminal.is_as_it_was()
    open_store.queue("here").put(b"x")
    terminal.shows(" 42 ")
    if isinstance(how, str):
        os.write(terminal.end, how.encode())
    else:
        terminal.process.send_signal(how)
    assert terminal.ended() == status
    assert terminal.text.endswith("\x1b[?1049l")  # the screen that was there


def test_live_view_ends_when_the_store_is_closed(path: Path) -> None:
    with pyqstore.open(path) as store:
        store.queue("here")
        terminal = Terminal("top", path, "--interval", 0.1)
        terminal.shows("here")
    assert terminal.ended() == 0
    assert "has closed the store, or ended" in terminal.text

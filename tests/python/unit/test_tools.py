"""The commands on a store that this process has open, and on the same store when it is closed: the
words are the same, and so is what happens.  The command runs in this process; the owner's side of
the socket is the real one."""

import base64
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import pyqstore
from pyqstore.cli import main
from pyqstore.cli.shared import named_value
from pyqstore.control.operations import OPERATIONS
from pyqstore.control.reaching import reach
from pyqstore.control.talk import LocalTalk

from ..support import PERSISTENT, publish_numbers, rest, wait_until


def nothing_asked(_report: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    raise AssertionError("nothing is asked")


def run(*arguments: object, stdin: str | bytes = "") -> str:
    done = CliRunner().invoke(main, [*map(str, arguments)], input=stdin)
    assert done.exit_code == 0, done.output
    return done.output


def told(*arguments: object, stdin: str | bytes = "") -> Any:
    return json.loads(run(*arguments, "--json", stdin=stdin))


def refused(*arguments: object, status: int = 3) -> str:
    done = CliRunner().invoke(main, [*map(str, arguments)])
    assert done.exit_code == status, done.output
    return done.output


@pytest.fixture(params=["open", "closed"])
def place(path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The directory of a store, which is open here or nowhere."""
    if request.param == "closed":
        pyqstore.open(path).close()
        yield path
    else:
        with pyqstore.open(path):
            yield path


def peeked(place: Path, queue: str) -> list[str]:
    return [message["body"] for message in told("peek", place, queue, "--limit", 10_000)]


def test_publish_peek_and_purge(place: Path) -> None:
    assert run("declare", place, "q") == "queue q is declared\n"
    assert told("publish", place, "q", "--body", "hällo") == {"published": 1}
    for _ in range(2):  # peeking changes nothing
        (message,) = told("peek", place, "q")
        assert message["body"] == "hällo"
        assert message["routing_key"] == "q"
        assert message["redelivered"] is False
        assert message["delivery_count"] == 0
        assert message["properties"] == {"delivery_mode": 2}
    assert run("peek", place, "q") == "hällo\n"
    assert told("purge", place, "q") == {"queue": "q", "messages": 1}
    assert told("peek", place, "q") == []


def test_publish_lines_a_file_headers_and_properties(place: Path, tmp_path: Path) -> None:
    run("declare", place, "q")
    assert told("publish", place, "q", stdin=b"one\n\ntwo") == {"published": 3}
    (tmp_path / "body").write_bytes(b"\xff\x00")
    run("publish", place, "q", "--file", tmp_path / "body", "--header", "n=1", "--header", "t=x y",
        "--header", "yes=true", "--property", "priority=3", "--property", "app_id=me")  # fmt: skip
    messages = told("peek", place, "q")
    assert [message.get("body") for message in messages] == ["one", "", "two", None]
    last = messages[-1]
    assert base64.b64decode(last["body_base64"]) == b"\xff\x00"
    assert last["properties"] == {
        "headers": {"n": 1, "t": "x y", "yes": True},
        "delivery_mode": 2,
        "priority": 3,
        "app_id": "me",
    }
    assert "\\xff\\x00" in run("peek", place, "q")


def test_publish_that_no_queue_takes_is_refused(place: Path) -> None:
    assert "no queue takes" in refused("publish", place, "nothing", "--body", "x")
    assert "say either" in refused("publish", place, "--body", "x", status=2)


def test_publish_of_many_lines(place: Path) -> None:
    run("declare", place, "q")
    lines = "".join(f"{number}\n" for number in range(1203))
    assert told("publish", place, "q", stdin=lines) == {"published": 1203}
    assert peeked(place, "q") == [str(number) for number in range(1203)]


def test_consume_prints_and_removes(place: Path) -> None:
    run("declare", place, "q")
    run("publish", place, "q", stdin="1\n2\n3\n")
    assert run("consume", place, "q", "--limit", 2) == "1\n2\n"
    assert json.loads(run("consume", place, "q", "--json"))["body"] == "3"
    assert run("consume", place, "q", "--timeout", 0.05) == ""
    assert peeked(place, "q") == []


def test_exchanges_bindings_and_streams(place: Path) -> None:
    run("declare", place, "x", "--exchange", "topic")
    run("declare", place, "q", "--argument", "x-max-length=5", "--argument", "x-overflow=drop-head")
    run("declare", place, "s", "--stream")
    run("bind", place, "x", "q", "--key", "a.*")
    run("publish", place, "--exchange", "x", "--key", "a.b", "--body", "routed")
    run("publish", place, "s", "--body", "kept")
    assert peeked(place, "q") == ["routed"]
    assert told("peek", place, "s")[0]["offset"] == 0
    found = told("queues", place)
    assert found["queues"]["s"]["stream"] is True
    bound = [each for each in found["bindings"] if each["source"] == "x"]
    assert [(each["destination"], each["routing_key"]) for each in bound] == [("q", "a.*")]
    run("unbind", place, "x", "q", "--key", "a.*")
    assert "no queue takes" in refused(
        "publish", place, "--exchange", "x", "--key", "a.b", "--body", "x"
    )
    run("delete", place, "x", "--exchange")
    assert told("delete", place, "q") == {"queue": "q", "messages": 1}
    assert "no queue 'q'" in refused("delete", place, "q")
    assert "x" not in [each["name"] for each in told("queues", place)["exchanges"]]


def test_move_keeps_order_properties_and_limit(place: Path) -> None:
    run("declare", place, "a")
    run("declare", place, "b")
    run("publish", place, "a", "--header", "n=1", stdin="".join(f"{n}\n" for n in range(1100)))
    assert told("move", place, "a", "b", "--limit", 3) == {"moved": 3}
    assert told("move", place, "a", "b") == {"moved": 1097}
    assert peeked(place, "b") == [str(number) for number in range(1100)]
    assert told("peek", place, "b")[0]["properties"]["headers"] == {"n": 1}
    assert peeked(place, "a") == []
    assert "no queue 'c'" in refused("move", place, "b", "c")
    assert "there already" in refused("move", place, "b", "b")


def test_move_keeps_messages_in_their_queue_when_the_target_is_deleted_meanwhile(
    path: Path,
) -> None:
    bodies = [b"%d" % number for number in range(1200)]
    with pyqstore.open(path) as store, store.channel() as channel:
        for name in ("a", "b"):
            channel.queue_declare(name, durable=True)
        for body in bodies:
            channel.basic_publish("", "a", body, PERSISTENT)

        def told(report: dict[str, Any], _payload: bytes) -> None:
            if report["moved"] == 500:
                channel.queue_delete("b")

        with pytest.raises(pyqstore.NotFound, match="'b'"):
            # In this process, so that the queue goes between two packs.
            OPERATIONS["move"].run(store, {"queue": "a", "to": "b"}, LocalTalk(told, nothing_asked))
        assert [body for body, _ in rest(channel, "a")] == bodies[500:]


def test_move_to_a_full_queue_is_refused_and_moves_nothing(place: Path) -> None:
    run("declare", place, "a")
    run("declare", place, "b", "--argument", "x-max-length=1", "--argument",
        "x-overflow=reject-publish")  # fmt: skip
    run("publish", place, "a", stdin="1\n2\n3\n")
    refused("move", place, "a", "b")
    assert peeked(place, "a") == ["1", "2", "3"]


def test_consume_prints_whole_bodies_and_peek_cuts_them(place: Path) -> None:
    run("declare", place, "q")
    long = "x" * 5000
    run("publish", place, "q", "--body", long)
    assert run("peek", place, "q") == f"{long[:200]}... (5000 bytes)\n"
    assert run("consume", place, "q") == f"{long}\n"


def test_publish_sends_a_line_when_it_comes_and_not_with_the_500th(path: Path) -> None:
    with pyqstore.open(path) as store:
        store.queue("q")
        tool = subprocess.Popen(
            [sys.executable, "-m", "pyqstore", "publish", str(path), "q"], stdin=subprocess.PIPE
        )
        assert tool.stdin is not None
        for count, (line, whole) in enumerate([(b"one\ntw", 1), (b"o\n", 2), (b"three", 2)]):
            tool.stdin.write(line)
            tool.stdin.flush()
            wait_until(lambda whole=whole: store.queue_status("q").messages_ready == whole)
            assert tool.poll() is None, count
        tool.stdin.close()
        assert tool.wait(60) == 0
        with store.channel() as channel:
            assert [body for body, _ in rest(channel, "q")] == [b"one", b"two", b"three"]


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt(), 130), (KeyError("x"), 3), (RecursionError(), 3)]
)
def test_exit_status_is_not_that_of_damage_when_a_command_is_interrupted_or_fails(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("pyqstore.cli.shared.reach", fails)
    refused("stats", path, status=status)


def test_queue_that_goes_with_its_last_consumer_stays_when_nothing_came_to_consume(
    path: Path,
) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", auto_delete=True)
        assert run("consume", path, "q", "--timeout", "0.2") == ""
        assert store.queues() == ["q"]


def test_call_that_came_to_a_tools_store_ends_before_the_tool_closes_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        for name in ("first", "second"):
            channel.queue_declare(name, durable=True)
            channel.basic_publish("", name, b"x", PERSISTENT)
    has_opened, has_come, is_ending = threading.Event(), threading.Event(), threading.Event()
    end_calls = pyqstore.Store._end_calls

    def ending(store: pyqstore.Store, _: float) -> None:
        is_ending.set()
        end_calls(store, 60)

    def consumed(name: str, tells: threading.Event, waits: threading.Event) -> Any:
        def asked(_: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
            tells.set()
            assert waits.wait(60)
            return {}, b""

        return reach(path, "consume", {"queue": name, "limit": 1}, asked=asked)

    monkeypatch.setattr(pyqstore.Store, "_end_calls", ending)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(consumed, "first", has_opened, has_come)
        assert has_opened.wait(60)
        second = threads.submit(consumed, "second", has_come, is_ending)
        assert [first.result(), second.result()] == [{"consumed": 1}, {"consumed": 1}]


def test_option_value_that_is_nested_too_deep_is_text() -> None:
    deep = "[" * 200_000
    assert named_value(f"h={deep}") == ("h", deep)


def test_inspect_stats_and_checkpoint(place: Path) -> None:
    run("declare", place, "q")
    run("publish", place, "q", "--body", "x")
    assert told("inspect", place)["queues"]["q"]["messages_ready"] == 1
    assert told("stats", place)["sync"] == "fdatasync"
    report = told("checkpoint", place)
    assert report["checkpoint_lsn"] <= report["durable_lsn"]


def test_snapshot_and_verify(place: Path, tmp_path: Path) -> None:
    run("declare", place, "q")
    run("publish", place, "q", stdin="1\n2\n")
    report = told("snapshot", place, tmp_path / "out")
    assert report["path"] == str(tmp_path / "out")
    assert report["files"] > 0
    assert peeked(tmp_path / "out", "q") == ["1", "2"]
    assert "files" in run("snapshot", place, tmp_path / "again")
    assert "empty directory" in refused("snapshot", place, tmp_path / "out")
    for store in (place, tmp_path / "out"):
        assert told("verify", store)["damages"] == 0
        assert run("verify", store).startswith("no damaged places in 1 queues")
    assert not list(tmp_path.glob("*verifying*"))


def test_declaring_makes_a_store_and_nothing_else_does(tmp_path: Path) -> None:
    path = tmp_path / "new"
    for words in (["purge", path, "q"], ["publish", path, "q", "--body", "x"], ["peek", path, "q"]):
        refused(*words)
    assert not path.exists()
    run("declare", path, "q")
    assert "q" in told("queues", path)["queues"]


def test_hostile_bodies_and_names_move_no_cursor(place: Path) -> None:
    name = "q\x1b[2J"
    run("declare", place, name)
    run("publish", place, name, "--body", "\x1b]0;owned\x07", "--header", "h=\x1b[31m")
    for words in (["peek", place, name], ["queues", place], ["dump", place, name],
                  ["peek", place, name, "--json"], ["consume", place, name]):  # fmt: skip
        assert "\x1b" not in run(*words)


def test_consumed_message_stays_when_its_reader_goes_away(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        for number in range(2000):
            channel.basic_publish("", "q", b"%d" % number * 200, PERSISTENT)
        tool = subprocess.Popen(
            [sys.executable, "-m", "pyqstore", "consume", str(path), "q"], stdout=subprocess.PIPE
        )
        assert tool.stdout is not None
        tool.stdout.readline()
        tool.stdout.close()
        tool.wait(60)
        end = time.monotonic() + 20
        while store.queue_status("q").messages_unacked and time.monotonic() < end:
            time.sleep(0.01)
        assert 0 < store.queue_status("q").messages_ready < 2001


KILLED = """
import os, signal, sys, threading
from pyqstore.control.reaching import reach

def told(report, payload):
    if report["moved"] == 500:
        kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
        threading.Timer(float(sys.argv[2]), kill).start()

reach(sys.argv[1], "move", {"queue": "a", "to": "b"}, told=told)
"""


@pytest.mark.crash
def test_move_that_is_killed_loses_and_doubles_nothing(path: Path) -> None:
    count = 20_000
    with pyqstore.open(path) as store, store.channel() as channel:
        for name in ("a", "b"):
            channel.queue_declare(name, durable=True)
        publish_numbers(channel, "a", count, properties=PERSISTENT)
    before = 0
    for after_s in (0.0, 0.003, 0.03):
        tool = subprocess.run([sys.executable, "-c", KILLED, str(path), str(after_s)], timeout=60)
        assert tool.returncode in (0, -signal.SIGKILL)
        bodies = []
        with pyqstore.open(path, read_only=True) as store:
            for name in ("b", "a"):
                for batch in store.browse(name):
                    bodies += batch["body"].to_pylist()
            moved = store.queue_status("b").messages_ready
        assert sorted(map(int, bodies)) == list(range(count))
        assert moved % 500 == 0
        assert moved > before or before == count  # the machine may be slow to kill it
        before = moved

"""The command line, as a process: what it prints, what it answers, what it leaves alone."""

import base64
import datetime
import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest

import pyqstore
from pyqstore.cli import main

from ..support import PERSISTENT, get, publish_numbers, run_command, run_python


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    return run_command(*arguments, env={**os.environ, "COLUMNS": "120"})


def output(*arguments: object) -> str:
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def filled(path: Path) -> Path:
    with (
        pyqstore.open(path, segment_entries=64, journal_file_bytes="64KiB") as store,
        store.channel() as channel,
    ):
        channel.queue_declare("q", durable=True)
        channel.queue_declare("idle", durable=True, arguments={"x-queue-mode": "lazy"})
        publish_numbers(channel, "q", 200, properties=PERSISTENT)
        channel.basic_publish("", "q", b"x" * 9000, PERSISTENT)
    return path


def test_inspect(filled: Path) -> None:
    report: dict[str, Any] = json.loads(output("inspect", filled, "--json"))
    assert sorted(report["queues"]) == ["idle", "q"]
    status = report["queues"]["q"]
    assert status["messages_ready"] == 201
    assert sum(status[state] for state in ("alpha", "beta", "gamma", "delta")) == 201
    assert status["target_ram_count"] is None
    assert report["queues"]["idle"]["lazy"] is True
    assert report["segment_entries"] == 64
    assert report["segments"] == report["files"]["index"]
    assert report["files"]["messages"] == 1
    assert report["bytes"]["messages"] >= 9000
    text = output("inspect", filled)
    for word in ("idle (lazy)", "201", "journal", "messages"):
        assert word in text


def test_inspect_shows_what_a_killed_spark_job_left(filled: Path) -> None:
    assert json.loads(output("inspect", filled, "--json"))["staging"] == []
    job = filled / "staging" / "job-1"
    job.mkdir(parents=True)
    (job / "0-1.arrow").write_bytes(b"x" * 5000)
    os.utime(job, (time.time() - 90_000, time.time() - 90_000))
    (found,) = json.loads(output("inspect", filled, "--json"))["staging"]
    assert (found["job"], found["files"]) == ("job-1", 1)
    assert found["bytes"] >= 5000
    assert found["age_s"] >= 90_000
    text = output("inspect", filled)
    for word in ("job-1", "1 day"):
        assert word in text


def test_stats(filled: Path) -> None:
    report: dict[str, Any] = json.loads(output("stats", filled, "--json"))
    assert report["recovered_messages"] == 201
    assert report["recovery_report"]["queues"] == {"idle": 0, "q": 201}
    assert report["options"]["segment_entries"] == 64
    assert "recovered_messages" in output("stats", filled)


def test_verify_a_whole_store(filled: Path) -> None:
    assert output("verify", filled).startswith("no damaged places in 2 queues")
    report: dict[str, Any] = json.loads(output("verify", filled, "--json"))
    assert report["damages"] == 0
    assert report["damage"] == []
    assert report["bodies"] == 1


def test_verify_names_the_damage(filled: Path) -> None:
    file = next(filled.glob("messages/*"))
    contents = bytearray(file.read_bytes())
    contents[-5000] ^= 1
    file.write_bytes(contents)
    done = run("verify", filled)
    assert done.returncode == 1
    assert f"messages/{file.name}" in done.stdout
    assert "1 damaged place in 2 queues" in done.stdout
    done = run("verify", filled, "--json")
    assert done.returncode == 1
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["damage"][0]["path"] == f"messages/{file.name}"
    assert report["damage"][0]["offset"] > 0


def test_opening_a_damaged_store_names_the_damage(filled: Path) -> None:
    file = next(filled.glob("checkpoint/*"))
    file.write_bytes(b"")
    done = run("stats", filled)
    assert (done.returncode, done.stdout) == (1, "")
    assert file.name in done.stderr
    assert done.stderr.count("\n") == 1


def test_dump_leaves_everything_in_its_place(filled: Path) -> None:
    for _ in range(2):
        lines = [json.loads(line) for line in output("dump", filled, "q").splitlines()]
        assert [line["body"] for line in lines] == [*map(str, range(200)), "x" * 9000]
        assert all(line["properties"] == {"delivery_mode": 2} for line in lines)
        assert {line["routing_key"] for line in lines} == {"q"}
    assert len(output("dump", filled, "q", "--limit", 7).splitlines()) == 7
    assert output("dump", filled, "idle", "--json") == ""
    with pyqstore.open(filled) as store, store.channel() as channel:
        assert store.queue_status("q")["messages_ready"] == 201
        message = get(channel, "q")
        assert message.body == b"0"


def test_dump_goes_on_behind_damaged_messages(filled: Path) -> None:
    with pyqstore.open(filled) as store, store.channel() as channel:
        for letter in (b"y", b"z"):
            channel.basic_publish("", "q", letter * 9000, PERSISTENT)
    names = []
    for letter in (b"x", b"y"):
        for file in filled.glob("messages/*"):
            contents = bytearray(file.read_bytes())
            if (place := contents.find(letter * 9000)) > 0:
                contents[place + 7] ^= 1
                file.write_bytes(contents)
                names.append(file.name)
    done = run("dump", filled, "q")
    bodies = [json.loads(line)["body"] for line in done.stdout.splitlines()]
    assert bodies == [*map(str, range(200)), "z" * 9000]
    assert done.returncode == 1
    assert len(names) == 2
    for name, line in zip(names, done.stderr.splitlines(), strict=True):
        assert line.startswith(f"pyqstore: 'messages/{name}' at offset ")


def test_dump_goes_on_behind_a_segment_of_which_nothing_can_be_told(path: Path) -> None:
    with (
        pyqstore.open(path, segment_entries=64, checkpoint_bytes="1MiB") as store,
        store.channel() as channel,
    ):
        channel.queue_declare("q", durable=True)
        for number in range(1000):
            channel.basic_publish("", "q", b"%0200d" % number, PERSISTENT)
        taken = channel.get_batch("q", 100)
        channel.basic_ack(taken["delivery_tag"][-1].as_py())
    file = sorted(path.glob("index/*"))[2]
    contents = bytearray(file.read_bytes())
    contents[:64] = bytes(64)
    file.write_bytes(contents)
    done = run("dump", path, "q")
    assert done.returncode == 1
    bodies = [int(json.loads(line)["body"]) for line in done.stdout.splitlines()]
    assert bodies == [number for number in range(1000) if number != 99 and number // 64 != 2]
    assert done.stderr.startswith(f"pyqstore: 'index/{file.name}' at offset ")
    assert done.stderr.count("\n") == 1


def test_store_that_lost_its_manifest_is_damaged(filled: Path) -> None:
    (filled / "MANIFEST").unlink()
    for command in (["stats"], ["dump"], ["verify"]):
        done = run(*command, filled, *(["q"] if command == ["dump"] else []))
        assert done.returncode == 1
        text = done.stdout if command == ["verify"] else done.stderr
        assert "MANIFEST" in text
        assert "restore it from a backup" in text
    with pytest.raises(pyqstore.StoreCorrupt):
        pyqstore.open(filled, create=False)
    assert not (filled / "MANIFEST").exists()


def test_dump_of_bytes_and_all_kinds_of_headers(path: Path) -> None:
    headers = {
        "bytes": b"\xff",
        "time": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
        "list": [1, None, {"deep": True}],
        "nan": float("nan"),
    }
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        properties = PERSISTENT.replace(headers=headers, timestamp=5, app_id="app")
        channel.basic_publish("", "q", b"\xff\x00", properties)
    line: dict[str, Any] = json.loads(output("dump", path, "q"))
    assert base64.b64decode(line["body_base64"]) == b"\xff\x00"
    assert line["properties"] == {
        "headers": {
            "bytes": {"base64": "/w=="},
            "time": "2026-01-02T00:00:00+00:00",
            "list": [1, None, {"deep": True}],
            "nan": None,
        },
        "delivery_mode": 2,
        "timestamp": 5,
        "app_id": "app",
    }


@pytest.mark.parametrize("command", [["inspect"], ["verify"], ["stats"], ["dump"]])
def test_no_store_is_one_clear_line(tmp_path: Path, command: list[str]) -> None:
    queue = ["q"] if command == ["dump"] else []
    done = run(*command, tmp_path / "nowhere", *queue)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("pyqstore: ")
    assert "nowhere" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "nowhere").exists()


def test_open_store_that_lets_no_tools_in_is_one_clear_line(path: Path) -> None:
    with pyqstore.open(path, control=False):
        for command in (["inspect"], ["verify"]):
            done = run(*command, path)
            assert done.returncode == 3
            assert str(os.getpid()) in done.stderr
            assert done.stderr.count("\n") == 1


def test_no_queue_is_one_clear_line(filled: Path) -> None:
    done = run("dump", filled, "nothing")
    assert done.returncode == 3
    assert "no queue 'nothing'" in done.stderr


def test_wrong_arguments_exit_with_2(filled: Path) -> None:
    assert run("inspect").returncode == 2
    assert run("inspect", filled, "--yaml").returncode == 2
    assert run("explode", filled).returncode == 2


def test_help_tells_the_exit_status() -> None:
    text = output("--help")
    for word in ("inspect", "verify", "dump", "stats", "Exit status", "damaged"):
        assert word in text


@pytest.mark.parametrize("command", ["dump", "inspect"])
def test_reader_that_goes_away_is_no_crash(filled: Path, command: str) -> None:
    queue = ["q"] if command == "dump" else []
    with subprocess.Popen(
        [sys.executable, "-m", "pyqstore", command, str(filled), *queue],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 3


def test_progress_is_shown_on_a_terminal(filled: Path) -> None:
    reading, writing = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "pyqstore", "verify", str(filled)],
        stdout=subprocess.PIPE,
        stderr=writing,
        env={**os.environ, "TERM": "xterm"},
    ) as process:
        os.close(writing)
        shown = b""
        with os.fdopen(reading, "rb", buffering=0) as terminal:
            try:
                while part := terminal.read(4096):
                    shown += part
            except OSError:  # how the end of a pseudo-terminal looks
                pass
        assert process.wait(60) == 0
    assert b"verifying" in shown


@pytest.mark.clock
def test_dump_of_a_paged_queue_takes_constant_memory(path: Path) -> None:
    options: dict[str, Any] = {"segment_entries": 256, "sync": "none"}
    with pyqstore.open(path, memory_budget="1MiB", **options) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        body = b"x" * 3000
        for _ in range(80_000):
            channel.basic_publish("", "q", body, PERSISTENT)
    code = (
        "import resource, sys; from pyqstore.cli import main\n"
        "try: main()\n"
        "finally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    )

    def peak(limit: int) -> int:
        done = subprocess.run(
            [sys.executable, "-c", code, "dump", str(path), "q", "--limit", str(limit)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=True,
        )
        return int(done.stderr)

    assert peak(80_000) - peak(1000) < 40_000  # KiB, of 240 MB of messages


# ---- streams ----


@pytest.fixture
def streamed(path: Path) -> tuple[Path, datetime.datetime]:
    """A stream of 100 messages, of which 50 were published before the time."""
    with pyqstore.open(path) as store:
        events = store.stream("events", segment_bytes=4096)
        for number in range(50):
            events.publish(b"%d" % number, key="eu", headers={"padding": "." * 3000})
        store.checkpoint()
        time.sleep(0.01)
        middle = datetime.datetime.now(datetime.UTC)
        time.sleep(0.01)
        for number in range(50, 100):
            events.publish(b"%d" % number)
    return path, middle


def test_inspect_tells_of_a_stream(streamed: tuple[Path, datetime.datetime]) -> None:
    report: dict[str, Any] = json.loads(output("inspect", streamed[0], "--json"))
    status = report["queues"]["events"]
    assert status["stream"] is True
    assert (status["first"], status["next"], status["messages_ready"]) == (0, 100, 100)
    assert status["alpha"] + status["delta"] == 100
    assert status["segments"] >= 1
    assert status["disk_bytes"] > 0
    assert report["files"]["streams"] == status["segments"]
    text = output("inspect", streamed[0])
    assert "events (stream)" in text
    assert "segments" in text


@pytest.mark.slow
def test_dump_of_a_stream_between_offsets_and_times(
    streamed: tuple[Path, datetime.datetime],
) -> None:
    path, middle = streamed

    def dumped(*arguments: object) -> list[tuple[int, str]]:
        lines = map(json.loads, output("dump", path, "events", *arguments).splitlines())
        return [(line["offset"], line["body"]) for line in lines]

    everything = [(number, str(number)) for number in range(100)]
    assert dumped() == everything
    assert dumped("--from", 10, "--to", 12) == everything[10:12]
    assert dumped("--from", middle.isoformat()) == everything[50:]
    assert dumped("--to", middle.isoformat(), "--limit", 7) == everything[:7]
    assert dumped("--from", middle.isoformat(), "--to", 60) == everything[50:60]
    assert dumped("--from", 100) == dumped("--to", 0) == []
    assert dumped("--from", "first", "--to", "1h") == []
    assert dumped("--from", "1h", "--to", "next") == everything
    assert dumped("--from", "next") == dumped("--to", "first") == []
    last = dumped("--from", "last")
    assert last == everything[-len(last) :] != []
    for place in ("yesterday", "h", "1w", "9" * 30 + "Y", "9" * 30):
        done = run("dump", path, "events", "--from", place)
        assert (done.returncode, done.stdout) == (2, "")
        assert "no age such as 1h" in " ".join(done.stderr.split())


def test_dump_of_a_queue_has_no_offsets(filled: Path) -> None:
    done = run("dump", filled, "q", "--from", 3)
    assert (done.returncode, done.stdout) == (3, "")
    assert "is no stream" in done.stderr


def test_what_takes_long_to_import_is_imported_where_it_is_needed() -> None:
    seen = "print(*(name for name in ('asyncio', 'rich', 'pyarrow') if name in sys.modules))"
    script = f"import sys, pyqstore.cli.looking; {seen}"
    done = run_python(script, check=True)
    assert done.stdout.split() == []


def test_each_command_is_found_under_its_name() -> None:
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        assert command.name == name

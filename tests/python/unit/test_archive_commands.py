"""``pyqstore archive`` and ``restore --until``, and servers that archive: with processes, some of
which are killed.  What a restore must have is what was archived when it was killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import pyqstore
from pyqstore.archive_reports import archive_of
from pyqstore.archives import bases
from pyqstore.backups import Target
from pyqstore.cli import main
from pyqstore.control.reaching import reach

from ..archiving import held
from ..serving import served
from ..support import wait_until
from .http_asking import asked
from .test_http_metrics import samples

QUICK = ("--seconds", "0.1")


def run(*arguments: object, status: int = 0) -> str:
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == status, result.output
    return result.output


@contextmanager
def archiving(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """The command, which is killed at the end, if it is still there."""
    command = [sys.executable, "-m", "pyqstore", "archive", *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def told(directory: Path) -> dict[str, Any] | None:
    """What the owner tells of its archive; None: it has none."""
    report: dict[str, Any] | None = reach(directory, "stats").get("archive")
    return report


def wait_for_all(directory: Path) -> None:
    """What is durable now is archived, by a process that owns the store."""

    def is_there() -> bool:
        report = told(directory)
        return report is not None and report["restorable"] and report["lag_bytes"] == 0

    wait_until(is_there)


def put(store: pyqstore.Store, body: bytes) -> None:
    store.queue("q").put(body)
    store.sync()


def test_open_store_is_archived_by_its_owner_until_the_command_is_told_to_end(
    tmp_path: Path,
) -> None:
    target = tmp_path / "target"
    with pyqstore.open(tmp_path / "store") as store:
        put(store, b"before")
        with archiving(tmp_path / "store", target, *QUICK, "--json") as process:
            wait_until(lambda: (report := archive_of(store)) is not None and report.restorable)
            assert told(tmp_path / "store") is not None
            put(store, b"meanwhile")
            wait_for_all(tmp_path / "store")
            moment = datetime.now(UTC)
            put(store, b"last")
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        report = json.loads(out)
        assert report["bases"] == 1
        assert report["lag_bytes"] == 0
        assert told(tmp_path / "store") is None
        put(store, b"behind")
    assert "as of" in run("restore", target, tmp_path / "again")
    assert held(tmp_path / "again")["q"] == [b"before", b"meanwhile", b"last"]
    run("restore", target, tmp_path / "then", "--until", moment.isoformat())
    assert held(tmp_path / "then")["q"] == [b"before", b"meanwhile"]
    output = run("restore", target, tmp_path / "never", "--until", "1D", status=3)
    assert "the archive begins at" in output


def test_closed_store_is_opened_and_archived_by_the_command(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "store") as store:
        put(store, b"one")
    target = Target(str(tmp_path / "target"), create=True)
    with archiving(tmp_path / "store", target.place, *QUICK) as process:
        wait_until(lambda: bool(bases(target)))
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "1 bases" in out
    run("restore", target.place, tmp_path / "again")
    assert held(tmp_path / "again")["q"] == [b"one"]


def test_command_that_is_killed_ends_the_archive_and_another_one_goes_on(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "store") as store:
        for number in range(2):
            put(store, b"%d" % number)
            with archiving(tmp_path / "store", tmp_path / "target", *QUICK) as process:
                wait_until(lambda: (report := archive_of(store)) is not None and report.restorable)
                wait_for_all(tmp_path / "store")
                process.kill()
                process.wait()
            wait_until(lambda: archive_of(store) is None)
    run("restore", tmp_path / "target", tmp_path / "again")
    assert held(tmp_path / "again")["q"] == [b"0", b"1"]


def test_target_may_have_backups_as_well(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with pyqstore.open(tmp_path / "store") as store:
        put(store, b"backed up")
        name = json.loads(run("backup", tmp_path / "store", target, "--json"))["name"]
        put(store, b"archived")
        with archiving(tmp_path / "store", target, *QUICK) as process:
            wait_until(lambda: (report := archive_of(store)) is not None and report.restorable)
            process.terminate()
            process.communicate(timeout=60)
    run("restore", target, tmp_path / "again")
    assert held(tmp_path / "again")["q"] == [b"backed up", b"archived"]
    run("restore", target, tmp_path / "backup", "--backup", name)
    assert held(tmp_path / "backup")["q"] == [b"backed up"]
    output = run("restore", target, tmp_path / "x", "--backup", name, "--until", "1h", status=2)
    assert "leave one out" in output
    run("backup", tmp_path / "store", target, "--keep", 1)
    run("restore", target, tmp_path / "after")
    assert held(tmp_path / "after")["q"] == [b"backed up", b"archived"]


@pytest.mark.parametrize(
    "options",
    [("--seconds", "0"), ("--lag-bytes", "many"), ("--base-hours", "0"), ("--keep-days", "-1")],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: tuple[str, str]) -> None:
    output = run("archive", tmp_path / "store", tmp_path / "target", *options, status=2)
    assert options[0] in output
    assert not (tmp_path / "store").exists()


def test_metrics_have_the_archive(tmp_path: Path) -> None:
    with (
        pyqstore.open(tmp_path / "store") as store,
        asked(store) as ask,
        archiving(tmp_path / "store", tmp_path / "target", *QUICK),
    ):
        assert not any("archive" in name for name, _ in samples(ask, "/metrics"))
        wait_until(lambda: (report := archive_of(store)) is not None and report.restorable)
        put(store, b"x")
        wait_for_all(tmp_path / "store")
        found = {name: value for (name, _), value in samples(ask, "/metrics").items()}
        assert found["pyqstore_archive_restorable"] == 1
        assert found["pyqstore_archive_lag_bytes"] == 0
        assert found["pyqstore_archive_parts_total"] >= 1
        assert found["pyqstore_archive_bases_total"] == 1


# ---- servers ----


def published(directory: Path, count: int) -> None:
    for number in range(count):
        reach_publish(directory, b"%d" % number)


def reach_publish(directory: Path, body: bytes) -> None:
    run("publish", directory, "q", "--body", body.decode())


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_server_archives_its_store(tmp_path: Path, end: int) -> None:
    target = tmp_path / "target"
    listen = ("--listen", "127.0.0.1:0", "--archive", str(target), "--archive-keep-days", "7")
    with served(tmp_path / "store", *listen) as server:
        server.addresses()
        run("declare", tmp_path / "store", "q")
        wait_for_all(tmp_path / "store")
        published(tmp_path / "store", 5)
        if end == signal.SIGKILL:
            wait_for_all(tmp_path / "store")
        status, _, err = server.end(end)
    assert (status, err) == ((0, "") if end == signal.SIGTERM else (-9, ""))
    run("restore", target, tmp_path / "again")
    assert held(tmp_path / "again")["q"] == [b"%d" % number for number in range(5)]


def test_server_ends_where_there_can_be_no_archive(tmp_path: Path) -> None:
    target = Target(str(tmp_path / "target"), create=True)
    pyqstore.open(tmp_path / "other").close()
    with archiving(tmp_path / "other", target.place, *QUICK) as process:
        wait_until(lambda: bool(bases(target)))
        process.terminate()
        process.communicate(timeout=60)
    listen = ("--listen", "127.0.0.1:0", "--archive", target.place)
    with served(tmp_path / "store", *listen) as server:
        _, err = server.process.communicate(timeout=60)
    assert server.process.returncode == 3
    assert "has the archive of another store" in err


def refused(*arguments: object) -> str:
    """What ``serve`` says: a process of its own, as it has signals for itself."""
    command = [sys.executable, "-m", "pyqstore", "serve", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_server_with_virtual_hosts_archives_nothing(tmp_path: Path) -> None:
    options = ("--listen", "127.0.0.1:0", "--vhost", f"v={tmp_path / 'v'}")
    output = refused(tmp_path / "store", *options, "--archive", tmp_path / "t")
    assert "run pyqstore archive for each store" in output
    output = refused(tmp_path / "s", *options[:2], "--archive-keep-days", 3)
    assert "--archive-keep-days needs --archive" in output

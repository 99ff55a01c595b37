"""Backups in a directory: made of stores at work by the command, and of copies by the functions;
damaged, cut short and killed at several steps.  Processes that die do so by SIGKILL."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

import pyqstore
from pyqstore.backups import Target, back_up, backups, prune, restore
from pyqstore.cli import main

from ..support import PERSISTENT


def filled(path: Path, count: int = 200) -> Path:
    """A closed store."""
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        for number in range(count):
            channel.basic_publish("", "q", b"%d" % number * 40, PERSISTENT)
        store.checkpoint()
    return path


def held(path: Path) -> list[bytes]:
    """The bodies of its queue."""
    assert pyqstore.verify(path).damages == 0
    with pyqstore.open(path) as store, store.channel() as channel:
        found = []
        while (message := channel.basic_get("q", auto_ack=True)) is not None:
            found.append(message.body)
        return found


def expected(count: int = 200) -> list[bytes]:
    return [b"%d" % number * 40 for number in range(count)]


def run(*arguments: object, status: int = 0) -> str:
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == status, result.output
    return result.output


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(str(tmp_path / "target"), create=True)


def test_store_at_work_is_backed_up_and_restored(tmp_path: Path) -> None:
    filled(tmp_path / "store")
    with pyqstore.open(tmp_path / "store") as store, store.channel() as channel:
        channel.basic_publish("", "q", b"after", PERSISTENT)
        store.sync()
        report = json.loads(run("backup", tmp_path / "store", tmp_path / "target", "--json"))
        channel.basic_publish("", "q", b"too late", PERSISTENT)
        store.sync()
    assert report["sent"] <= report["files"]
    assert run("backups", tmp_path / "target") == report["name"] + "\n"
    run("restore", tmp_path / "target", tmp_path / "again")
    assert held(tmp_path / "again") == [*expected(), b"after"]
    assert sorted(os.listdir(tmp_path)) == ["again", "store", "target"]


def test_closed_store_is_backed_up_to_a_file_url(tmp_path: Path) -> None:
    filled(tmp_path / "store")
    place = (tmp_path / "a b").as_uri()
    run("backup", tmp_path / "store", place)
    run("restore", place, tmp_path / "again")
    assert held(tmp_path / "again") == expected()


def test_older_backups_than_are_kept_go_when_one_is_made(tmp_path: Path) -> None:
    filled(tmp_path / "store")
    for _ in range(3):
        report = json.loads(
            run("backup", tmp_path / "store", tmp_path / "target", "--keep", 2, "--json")
        )
    assert len(report["removed"]) == 1
    assert len(json.loads(run("backups", tmp_path / "target", "--json"))) == 2


def test_what_the_target_has_is_not_sent_again(tmp_path: Path, target: Target) -> None:
    filled(tmp_path / "store")
    first = back_up(tmp_path / "store", target)
    assert 0 < first.sent <= first.files  # of equal ones one
    second = back_up(tmp_path / "store", target)
    assert (second.sent, second.sent_bytes, second.files) == (0, 0, first.files)
    with pyqstore.open(tmp_path / "store") as store:
        store.queue("q").put(b"one more")
    assert 0 < back_up(tmp_path / "store", target).sent < first.files
    assert len(backups(target)) == 3


def test_older_backup_is_restored_by_its_name(tmp_path: Path, target: Target) -> None:
    filled(tmp_path / "store", 10)
    first = back_up(tmp_path / "store", target)
    with pyqstore.open(tmp_path / "store") as store:
        store.queue("q").put(b"one more")
    back_up(tmp_path / "store", target)
    restore(target, tmp_path / "first", first.name)
    restore(target, tmp_path / "newest")
    assert held(tmp_path / "first") == expected(10)
    assert held(tmp_path / "newest") == [*expected(10), b"one more"]


def test_files_of_no_backup_go_with_those_that_are_pruned(tmp_path: Path, target: Target) -> None:
    filled(tmp_path / "store")
    back_up(tmp_path / "store", target)
    with pyqstore.open(tmp_path / "store") as store:
        store.queue("q").put(b"one more")
    last = back_up(tmp_path / "store", target)
    before = target.listed("files")
    assert len(prune(target, 1)) == 1
    assert target.listed("files") == before  # another backup may be about to name them
    assert prune(target, 1, timedelta(0)) == []
    assert 0 < len(target.listed("files")) < len(before)
    assert backups(target) == [last.name]
    restore(target, tmp_path / "again")
    assert held(tmp_path / "again") == [*expected(), b"one more"]
    with pytest.raises(ValueError, match="1 or more"):
        prune(target, 0)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)


def exchange(path: Path) -> None:
    others = [other for other in path.parent.iterdir() if other != path]
    path.write_bytes(max(others, key=lambda other: other.stat().st_size).read_bytes())


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("harm", [cut, flip, exchange, empty, remove])
def test_damaged_file_of_a_backup_is_named_and_nothing_is_restored(
    tmp_path: Path, target: Target, harm: Callable[[Path], None]
) -> None:
    filled(tmp_path / "store")
    back_up(tmp_path / "store", target)
    for victim in sorted((tmp_path / "target/files").iterdir()):
        kept = victim.read_bytes()
        if harm is exchange and kept == b"":
            continue
        harm(victim)
        with pytest.raises((ValueError, OSError), match=victim.name):
            restore(target, tmp_path / "again")
        assert sorted(os.listdir(tmp_path)) == ["store", "target"]
        victim.write_bytes(kept)
    restore(target, tmp_path / "again")
    assert held(tmp_path / "again") == expected()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": 2, "made": "2026-01-01T00:00:00", "files": []}',
        "[" * 100_000,
        '{"format": 1, "made": "2026-01-01T00:00:00+00:00",'
        ' "files": [{"name": "MANIFEST", "size": Infinity, "sha256": ""}]}',
        *(
            json.dumps(
                {
                    "format": 1,
                    "made": "2026-01-01T00:00:00+00:00",
                    "files": [{"name": name, "size": 0, "sha256": "0" * 64}],
                }
            )
            for name in ("../out", "/etc/passwd", "journal/../../out", "other/file", "")
        ),
    ],
)
def test_document_that_is_none_is_refused(tmp_path: Path, target: Target, text: str) -> None:
    name = "20260101T000000.000000Z-01234567"
    target.put(f"backups/{name}.json", [text.encode()])
    with pytest.raises(ValueError, match=rf"{re.escape(name)}\.json is no backup's document"):
        restore(target, tmp_path / "again")
    assert os.listdir(tmp_path) == ["target"]


def test_restoring_overwrites_nothing(tmp_path: Path, target: Target) -> None:
    filled(tmp_path / "store")
    with pytest.raises(FileNotFoundError, match="there is no backup"):
        restore(target, tmp_path / "again")
    back_up(tmp_path / "store", target)
    with pytest.raises(FileExistsError, match="new or an empty directory"):
        restore(target, tmp_path / "store")
    with pytest.raises(FileNotFoundError, match="no backup is named"):
        restore(target, tmp_path / "again", "../../etc")
    (tmp_path / "again").mkdir()
    restore(target, tmp_path / "again")
    assert held(tmp_path / "again") == expected()


def test_target_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert "no such directory" in run("backups", tmp_path / "none", status=3)
    assert "file:///PATH" in run("backups", "file://elsewhere/path", status=3)
    assert run("backups", "nothing://there", status=3).startswith("pyqstore: ")
    assert os.listdir(tmp_path) == []


def test_without_obstore_the_command_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    assert "pip install 'pyqstore[backup]'" in run("backups", tmp_path, status=3)


def test_target_that_cannot_be_written_leaves_no_backup(tmp_path: Path, target: Target) -> None:
    filled(tmp_path / "store")
    (tmp_path / "target/files").write_text("in the way")
    with pytest.raises(OSError, match="target"):
        back_up(tmp_path / "store", target)
    assert backups(target) == []


KILLED = """
import os, signal, sys
from pyqstore.backups import Target, back_up, restore
verb, at = sys.argv[1], int(sys.argv[2])
calls = 0
def progress(done, total):
    global calls
    calls += 1
    if calls == at:
        os.kill(os.getpid(), signal.SIGKILL)
target = Target(sys.argv[4], create=True)
if verb == "back_up":
    back_up(sys.argv[3], target, progress)
else:
    restore(target, sys.argv[3], None, progress)
"""


@pytest.mark.parametrize("at", [1, 3])
def test_backup_whose_process_is_killed_is_not_there(
    tmp_path: Path, target: Target, at: int
) -> None:
    filled(tmp_path / "store")
    killed = [sys.executable, "-c", KILLED, "back_up", str(at), str(tmp_path / "store")]
    ended = subprocess.run([*killed, str(tmp_path / "target")], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert backups(target) == []
    made = back_up(tmp_path / "store", target)
    assert made.sent < made.files  # what was sent before serves
    restore(target, tmp_path / "again")
    assert held(tmp_path / "again") == expected()


@pytest.mark.parametrize("at", [1, 3])
def test_restored_store_whose_process_is_killed_is_not_there(
    tmp_path: Path, target: Target, at: int
) -> None:
    filled(tmp_path / "store")
    back_up(tmp_path / "store", target)
    killed = [sys.executable, "-c", KILLED, "restore", str(at), str(tmp_path / "again")]
    ended = subprocess.run([*killed, str(tmp_path / "target")], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not (tmp_path / "again").exists()
    restore(target, tmp_path / "again")
    assert held(tmp_path / "again") == expected()


def test_holes_stay_holes(tmp_path: Path, target: Target) -> None:
    (tmp_path / "copy").mkdir()
    filled(tmp_path / "store")
    made = back_up(tmp_path / "store", target)
    restore(target, tmp_path / "again")
    took = sum(path.stat().st_blocks for path in (tmp_path / "again").rglob("*")) * 512
    assert took < made.bytes / 2


def test_what_is_no_store_is_not_backed_up(tmp_path: Path, target: Target) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("missing", "empty"):
        with pytest.raises(pyqstore.StoreNotFound):
            back_up(tmp_path / name, target)
    assert backups(target) == []


def test_damaged_store_is_backed_up_as_it_is_and_removes_no_other(tmp_path: Path) -> None:
    store, target = tmp_path / "store", tmp_path / "target"
    with pyqstore.open(store) as opened, opened.channel() as channel:
        channel.queue_declare("q", durable=True)
        for _ in range(3):
            channel.basic_publish("", "q", os.urandom(20_000), PERSISTENT)
    run("backup", store, target)
    (messages,) = (store / "messages").iterdir()
    flip(messages)
    assert "is of a damaged store" in run("backup", store, target, "--keep", 1, status=1)
    assert len(backups(Target(str(target)))) == 2
    assert messages.name in run("restore", target, tmp_path / "again", status=1)
    assert pyqstore.verify(tmp_path / "again").damages == 1
    with pyqstore.open(tmp_path / "again") as opened:
        assert opened.queue_status("q").messages_ready == 3


def test_backup_in_a_directory_is_its_owners_alone(tmp_path: Path) -> None:
    filled(tmp_path / "store")
    run("backup", tmp_path / "store", tmp_path / "target")
    for path in (tmp_path / "target", *(tmp_path / "target").rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_newest_backup_is_the_last_one_whatever_the_clock_says(
    tmp_path: Path, target: Target
) -> None:
    filled(tmp_path / "store", 10)
    first = back_up(tmp_path / "store", target)
    ahead = f"2999{first.name[4:]}"
    (tmp_path / f"target/backups/{first.name}.json").rename(
        tmp_path / f"target/backups/{ahead}.json"
    )
    last = back_up(tmp_path / "store", target)
    assert backups(target) == [ahead, last.name]
    assert prune(target, 1) == [ahead]


def test_file_that_is_no_stores_is_named_and_not_backed_up(tmp_path: Path, target: Target) -> None:
    filled(tmp_path / "store")
    (tmp_path / "store/staging").mkdir(exist_ok=True)
    (tmp_path / "store/staging/rows").write_text("")
    with pytest.raises(ValueError, match="staging/rows"):
        back_up(tmp_path / "store", target)
    assert backups(target) == []

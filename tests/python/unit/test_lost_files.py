"""Files that are lost, cut, zeroed or put back from an older copy: told, and nothing is changed.

The stores are real ones of child processes that were killed.  What is checked each time: opening
raises `StoreCorrupt`, with and without `create`; `pyqstore verify` says 1; not a byte differs
afterwards.
"""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import pyqstore
from pyqstore.cli import main

from ..support import PERSISTENT

PAGE = 4096
FIRST_BLOCK = 3 * PAGE

# Publishes count messages from first on, each confirmed by itself, says so and waits to be killed.
CHILD = """
import sys, time
import pyqstore

path, first, count, rest = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
store = pyqstore.open(path, journal_file_bytes="64KiB", checkpoint_bytes=1 << 40,
                      checkpoint_interval=None)
channel = store.channel()
channel.queue_declare("q", durable=True)
channel.confirm_select()
properties = pyqstore.Properties(delivery_mode=2)
for number in range(first, first + count):
    channel.basic_publish("", "q", b"%d" % number, properties)
    assert channel.wait_for_confirms(60)
time.sleep(rest)
print("confirmed", flush=True)
time.sleep(600)
"""


def publish_and_kill(path: Path, first: int, count: int, rest: float = 0.0) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), str(first), str(count), str(rest)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    said = child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.stdout.close()
    assert child.wait(60) == -signal.SIGKILL
    assert said == "confirmed\n"


def tree(path: Path) -> dict[str, bytes | None]:
    """Every file's bytes, and every directory; the lock's file says who looked last."""
    return {
        str(found.relative_to(path)): found.read_bytes() if found.is_file() else None
        for found in path.rglob("*")
        if found.name != "LOCK"
    }


def assert_refused(path: Path, *names: str, salvages: bool = True) -> None:
    before = tree(path)
    for options in ({}, {"create": False}, *([] if salvages else [{"recovery": "salvage"}])):
        with pytest.raises(pyqstore.StoreCorrupt) as caught:
            pyqstore.open(path, **options)  # type: ignore[arg-type]
        assert any(name in (caught.value.path or "") for name in names), caught.value
        assert tree(path) == before
    assert CliRunner().invoke(main, ["verify", str(path)]).exit_code == 1
    assert tree(path) == before


def count_of(path: Path, **options: object) -> int:
    with pyqstore.open(path, **options) as store, store.channel() as channel:  # type: ignore[arg-type]
        return channel.queue_declare("q", passive=True).message_count


def journal(path: Path) -> list[Path]:
    return sorted((path / "journal").iterdir())


def begun(path: Path) -> list[Path]:
    """The journal files that have a header."""
    return [file for file in journal(path) if file.read_bytes()[:8] == b"QSJOURN1"]


def zero(file: Path, begin: int = 0, end: int | None = None) -> None:
    data = bytearray(file.read_bytes())
    end = len(data) if end is None else end
    data[begin:end] = bytes(end - begin)
    file.write_bytes(data)


# ---- MANIFEST is gone


def fill(path: Path, **options: object) -> None:
    with pyqstore.open(path, **options) as store, store.channel() as channel:  # type: ignore[arg-type]
        channel.queue_declare("q", durable=True)
        channel.confirm_select()
        for number in range(500):
            body = b"%d" % number if number % 5 else b"x" * 10_000
            channel.basic_publish("", "q", body, PERSISTENT)
        assert channel.wait_for_confirms(60)


def test_a_store_that_lost_its_manifest_is_not_born_again(path: Path) -> None:
    fill(path)
    for _ in range(2):
        with pyqstore.open(path) as store:
            store.checkpoint()
    manifest = (path / "MANIFEST").read_bytes()
    (path / "MANIFEST").unlink()
    assert_refused(path, "MANIFEST", salvages=False)
    (path / "MANIFEST").write_bytes(manifest)
    assert count_of(path) == 500


@pytest.mark.parametrize("kept", ["journal", "checkpoint", "messages", "index", "transient"])
def test_one_file_is_enough_to_show_that_there_was_a_store(path: Path, kept: str) -> None:
    fill(path, memory_budget="64KiB")
    (path / "transient" / "0000000000000009-000000000000-00000000.seg").write_bytes(b"left")
    (path / "MANIFEST").unlink()
    for name in ("journal", "checkpoint", "messages", "index", "transient"):
        if name != kept:
            shutil.rmtree(path / name)
    assert list((path / kept).iterdir())
    assert_refused(path, "MANIFEST", salvages=False)


def test_streams_show_that_there_was_a_store(path: Path) -> None:
    (path / "streams").mkdir(parents=True)
    path.chmod(0o700)
    (path / "streams" / "1").write_bytes(b"")
    assert_refused(path, "MANIFEST", salvages=False)


def test_zeroed_journal_files_are_not_taken_for_a_new_store(path: Path) -> None:
    fill(path)
    (path / "MANIFEST").unlink()
    for file in journal(path):
        zero(file)
    assert_refused(path, "MANIFEST", salvages=False)


def test_a_manifest_that_is_zeroed_or_cut_is_damage(path: Path) -> None:
    fill(path)
    whole = (path / "MANIFEST").read_bytes()
    for bad in (b"", bytes(len(whole)), whole[:50], whole[:-1], whole + b"\0"):
        (path / "MANIFEST").write_bytes(bad)
        assert_refused(path, "MANIFEST", salvages=False)
    (path / "MANIFEST").write_bytes(whole)
    assert count_of(path) == 500


def test_a_directory_without_files_becomes_a_store(path: Path) -> None:
    for name in ("journal", "messages"):
        (path / name).mkdir(parents=True, mode=0o700)
    path.chmod(0o700)
    (path / "MANIFEST.tmp").write_bytes(b"half a manifest")
    fill(path)
    assert count_of(path) == 500


@pytest.mark.parametrize("name", ["journal", "checkpoint", "messages", "index"])
def test_a_missing_directory_is_not_made_again(path: Path, name: str) -> None:
    fill(path)
    shutil.rmtree(path / name)
    assert_refused(path, name)


def test_salvage_without_the_checkpoint_makes_no_directory(path: Path) -> None:
    fill(path)
    with pyqstore.open(path) as store:
        store.checkpoint()
    shutil.rmtree(path / "checkpoint")
    assert_refused(path, "checkpoint", salvages=False)


def bodies_shown(store: pyqstore.Store, queue: str) -> list[bytes]:
    return [body for batch in store.browse(queue) for body in batch.column("body").to_pylist()]


@pytest.mark.parametrize("harm", ["missing", "flipped", "cut", "empty"])
def test_without_the_checkpoint_a_salvaging_reader_shows_what_the_journal_has(
    path: Path, harm: str
) -> None:
    publish_and_kill(path, 0, 200)
    with pyqstore.open(path) as store:
        store.checkpoint()
    publish_and_kill(path, 200, 100)
    (checkpoint,) = (path / "checkpoint").glob("*.ckp")
    whole = checkpoint.read_bytes()
    harmed = {
        "flipped": whole[:70] + bytes([whole[70] ^ 1]) + whole[71:],
        "cut": whole[:-1],
        "empty": b"",
    }
    if harm == "missing":
        checkpoint.unlink()
    else:
        checkpoint.write_bytes(harmed[harm])
    assert_refused(path, f"checkpoint/{checkpoint.name}", salvages=False)
    before = tree(path)
    with pytest.raises(pyqstore.StoreCorrupt, match=r'recovery="salvage".* with read_only'):
        pyqstore.open(path)
    with pyqstore.open(path, recovery="salvage", read_only=True) as store:
        report = store.recovery_report
        (queue,) = store.queues()
        shown = bodies_shown(store, queue)
        assert report.lost_ranges == 1
        assert report.lost_bytes == len(whole)
        assert report.recovered_queues == 1
    assert queue.startswith("recovered.")
    assert shown == [b"%d" % number for number in range(200, 300)]
    assert tree(path) == before
    checkpoint.write_bytes(whole)
    assert count_of(path) == 300


def test_salvage_tells_that_the_journal_behind_a_checkpoint_is_gone(path: Path) -> None:
    fill(path)
    with pyqstore.open(path) as store:
        store.checkpoint()
    publish_and_kill(path, 500, 20)
    for file in journal(path):
        file.unlink()
    assert_refused(path, "journal/")
    with pyqstore.open(path, recovery="salvage") as store:
        assert store.recovery_report.messages == 500
        assert store.recovery_report.lost_ranges == 1


# ---- MANIFEST is an older copy


def test_a_manifest_one_session_old_does_not_hide_4000_confirms(path: Path) -> None:
    fill(path)
    manifest = (path / "MANIFEST").read_bytes()
    publish_and_kill(path, 500, 4000)
    newest = (path / "MANIFEST").read_bytes()
    (path / "MANIFEST").write_bytes(manifest)
    assert_refused(path, "MANIFEST")
    (path / "MANIFEST").write_bytes(newest)
    assert count_of(path) == 4500


def test_salvage_follows_the_journal_behind_an_older_manifest(path: Path) -> None:
    fill(path)
    manifest = (path / "MANIFEST").read_bytes()
    publish_and_kill(path, 500, 1000)
    (path / "MANIFEST").write_bytes(manifest)
    assert_refused(path, "MANIFEST")
    assert count_of(path, recovery="salvage") == 1500
    assert count_of(path) == 1500


def open_and_close(path: Path) -> None:
    fill(path)


def open_checkpoint_and_close(path: Path) -> None:
    fill(path)
    with pyqstore.open(path) as store:
        store.checkpoint()
    fill(path)


def publish_kill(path: Path) -> None:
    publish_and_kill(path, 0, 30)


def publish_kill_twice(path: Path) -> None:
    publish_and_kill(path, 0, 30)
    publish_and_kill(path, 0, 30)


@pytest.mark.parametrize("since", [open_and_close, open_checkpoint_and_close, publish_kill,
                                   publish_kill_twice])  # fmt: skip
@pytest.mark.parametrize("before", [open_and_close, open_checkpoint_and_close, publish_kill])
def test_no_manifest_from_before_a_session_is_taken(
    path: Path, before: Callable[[Path], None], since: Callable[[Path], None]
) -> None:
    before(path)
    manifest = (path / "MANIFEST").read_bytes()
    since(path)
    newest = (path / "MANIFEST").read_bytes()
    (path / "MANIFEST").write_bytes(manifest)
    assert_refused(path, "MANIFEST", "journal/", "checkpoint/")
    (path / "MANIFEST").write_bytes(newest)
    assert pyqstore.open(path).close() is None


def test_no_manifest_of_a_running_session_is_taken_after_files_went(path: Path) -> None:
    copies: list[bytes] = []
    with pyqstore.open(path, journal_file_bytes="64KiB") as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.confirm_select()
        for _ in range(3):
            copies.append((path / "MANIFEST").read_bytes())
            for number in range(300):
                channel.basic_publish("", "q", b"%d" % number * 200, PERSISTENT)
            assert channel.wait_for_confirms(60)
            store.checkpoint()
    newest = (path / "MANIFEST").read_bytes()
    for copy in copies:
        (path / "MANIFEST").write_bytes(copy)
        assert_refused(path, "MANIFEST", "journal/", "checkpoint/")
    (path / "MANIFEST").write_bytes(newest)
    assert count_of(path) == 900


# ---- a journal file is gone


def remove(file: Path) -> None:
    file.unlink()


def truncate(file: Path) -> None:
    file.write_bytes(b"")


def cut_to_a_page(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:PAGE])


def zero_header(file: Path) -> None:
    zero(file, 0, PAGE)


@pytest.mark.parametrize("lose", [remove, zero, truncate, cut_to_a_page, zero_header])
@pytest.mark.parametrize("which", [0, 1, -2, -1])
def test_a_crashed_session_without_one_of_its_files_is_damaged(
    path: Path, which: int, lose: Callable[[Path], None]
) -> None:
    publish_and_kill(path, 0, 100)
    file = begun(path)[which]
    lose(file)
    assert_refused(path, "journal/")
    with pyqstore.open(path, recovery="salvage") as store:
        report = store.recovery_report
        if lose is zero_header:  # the blocks are there, and carry the salt that is expected of them
            assert report.lost_ranges == 0
            assert report.messages == 100
        else:
            assert report.lost_ranges == 1
            assert report.lost_bytes > 0
    with pytest.raises(pyqstore.StoreCorrupt):
        pyqstore.open(path)


@pytest.mark.parametrize("lose", [remove, zero, truncate, zero_header])
def test_a_session_in_one_file_that_is_lost_is_damaged(
    path: Path, lose: Callable[[Path], None]
) -> None:
    publish_and_kill(path, 0, 3)
    assert len(begun(path)) == 1
    lose(begun(path)[0])
    assert_refused(path, "journal/")


@pytest.mark.clock
def test_no_suffix_of_a_store_that_was_killed_when_quiet_goes_unseen(path: Path) -> None:
    publish_and_kill(path, 0, 30, rest=1.0)
    file = begun(path)[-1]
    whole = file.read_bytes()
    for begin in range(FIRST_BLOCK, len(whole) - PAGE, PAGE):
        if not any(whole[begin:]):
            break
        zero(file, begin)
        assert_refused(path, "journal/")
        file.write_bytes(whole)
    assert count_of(path) == 30


def test_no_page_of_a_store_that_was_killed_costs_more_than_its_last_commit(
    path: Path, tmp_path: Path
) -> None:
    publish_and_kill(path, 0, 60)
    copy = tmp_path / "copy"
    for number, file in enumerate(begun(path)):
        size = file.stat().st_size
        for begin in range(0, size, PAGE):
            shutil.copytree(path, copy)
            zero(copy / "journal" / file.name, begin, begin + PAGE)
            try:
                found = count_of(copy)
            except pyqstore.StoreCorrupt:
                found = 60
            assert found >= 59, (number, begin, found)
            shutil.rmtree(copy)


def test_a_file_that_nothing_was_written_to_may_go(path: Path) -> None:
    publish_and_kill(path, 0, 40)
    for file in journal(path):
        if file not in begun(path):
            file.unlink()
    assert count_of(path) == 40


def test_an_open_that_refuses_removes_no_leftover(path: Path) -> None:
    fill(path)
    with pyqstore.open(path) as store:
        store.checkpoint()
    publish_and_kill(path, 500, 40)
    (path / "index" / "00000000000000ff-000000000000-00000000.seg").write_bytes(b"left")
    (path / "transient" / "00000000000000ff-000000000000-00000000.seg").write_bytes(b"left")
    (path / "checkpoint" / "0000000000.ckp").write_bytes(b"left")
    message_file = next((path / "messages").iterdir())
    moved = path / "elsewhere"
    message_file.rename(moved)
    assert_refused(path, "messages/")
    moved.rename(message_file)
    begun(path)[-1].write_bytes(b"")
    assert_refused(path, "journal/")

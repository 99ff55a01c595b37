"""`pyqstore salvage`: a new store of what is whole in a damaged one.

One store with queues of every kind is copied for each test, and files of the copy are flipped, cut
or removed.  What is checked each time: not a byte of the damaged store differs afterwards, the new
one verifies, opens and drains, and what is missing of its messages is what the report tells.
"""

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import pyqstore
from pyqstore import salvaging
from pyqstore.cli import main

from ..support import PERSISTENT, declare

COUNT = 200
LARGE = 9000
STREAM, WORK = "stream", "work"
QUEUES = ("small", "large", "lazy", "ranked")


def body_of(queue: str, number: int) -> bytes:
    return b"%s %d " % (queue.encode(), number) + b"." * (LARGE if queue == "large" else 10)


def fill(store: pyqstore.Store) -> None:
    with store.channel() as channel:
        declare(channel, "small")
        declare(channel, "large")
        declare(channel, "lazy", queue_mode="lazy")
        declare(channel, "ranked", max_priority=3)
        declare(channel, STREAM, queue_type="stream", stream_max_segment_size_bytes=16384)
        declare(channel, WORK, stream_source=STREAM, stream_offset="first")
        channel.exchange_declare("topics", "topic", durable=True)
        channel.queue_bind("small", "topics", "a.#")
        for number in range(COUNT):
            for queue in QUEUES:
                if queue != "large" or number % 20 == 0:
                    channel.basic_publish("", queue, body_of(queue, number), PERSISTENT)
            if number == COUNT / 2:
                store.queue_status("lazy")  # waits until they are in segments
                store.checkpoint()
        for batch in range(4):
            rows = [body_of(STREAM, batch * 50 + row) + b"." * 400 for row in range(50)]
            channel.publish_batch(pa.table({"body": rows}), routing_key=STREAM)
        store.sync()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store as an orderly close leaves it."""
    path = tmp_path_factory.mktemp("salvage") / "whole"
    with pyqstore.open(path, segment_entries=64, journal_file_bytes="256KiB") as store:
        fill(store)
    (path / "users.json").write_text("{}")
    (path / "staging" / "spool-1").mkdir(parents=True)
    (path / "staging" / "spool-1" / "rows").write_bytes(b"the only copy")
    return path


@pytest.fixture
def damaged(whole: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "damaged"))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def nothing_shown(_what: str, _done: int, _total: int) -> None:
    return None


def hashes(path: Path) -> dict[str, str]:
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def first(path: Path, pattern: str) -> Path:
    return min(path.glob(pattern))


def flip(file: Path) -> None:
    contents = bytearray(file.read_bytes())
    for at in range(5000, len(contents), 16384):
        contents[at] ^= 1
    contents[70 % len(contents)] ^= 1
    file.write_bytes(contents)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2 + 7)


def remove(file: Path) -> None:
    file.unlink()


def drained(path: Path) -> dict[str, list[bytes]]:
    """All messages by queue; strictly opened."""
    found: dict[str, list[bytes]] = {}
    with pyqstore.open(path, create=False) as store, store.channel() as channel:
        for queue in store.queues():
            found[queue] = []
            if store.queue_status(queue).stream:
                for batch in store.browse(queue, damaged=lambda _error: None):
                    found[queue] += batch["body"].to_pylist()
            elif queue != WORK:
                while (message := channel.basic_get(queue)) is not None:
                    found[queue].append(message.body)
                    channel.basic_ack(message.delivery_tag)
    return found


@pytest.fixture(scope="module")
def everything(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[bytes]]:
    copy = tmp_path_factory.mktemp("drained") / "copy"
    shutil.copytree(whole, copy)
    return drained(copy)


def salvage(damaged: Path, out: Path) -> salvaging.Report:
    before = hashes(damaged)
    report = salvaging.salvage(damaged, out, nothing_shown)
    assert hashes(damaged) == before
    assert out.stat().st_mode & 0o777 == 0o700
    assert os.listdir(out.parent).count("out") == 1
    assert not list(out.parent.glob("out.*"))
    return report


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["salvage", *map(str, arguments)])


# ---- one kind of file after the other


def test_a_whole_store_is_copied_as_it_is(
    damaged: Path, out: Path, everything: dict[str, list[bytes]]
) -> None:
    report = salvage(damaged, out)
    assert report.is_lossless
    assert hashes(out) == {
        name: value
        for name, value in hashes(damaged).items()
        if name not in {"LOCK", "RESERVE"} and not name.startswith("transient")
    }
    assert drained(out) == everything


@pytest.mark.parametrize("harm", [flip, cut, remove])
@pytest.mark.parametrize("pattern", ["index/*.seg", "messages/*.msg", "streams/*.str"])
def test_a_damaged_file_costs_what_is_in_it_and_that_is_told(
    damaged: Path,
    out: Path,
    everything: dict[str, list[bytes]],
    pattern: str,
    harm: Callable[[Path], None],
) -> None:
    file = first(damaged, pattern)
    harm(file)
    report = salvage(damaged, out)
    assert not report.is_lossless
    assert {place.path for place in report.damage} == {str(file.relative_to(damaged))}
    found = pyqstore.verify(out)
    assert {place.path for place in found.damage} <= {str(file.relative_to(damaged))}
    assert (found.damages > 0) == (pattern == "streams/*.str")
    messages = drained(out)
    assert messages.keys() == everything.keys()
    lost = {}
    for queue, bodies in everything.items():
        left = set(messages[queue])
        assert messages[queue] == [body for body in bodies if body in left]
        if len(left) < len(bodies):
            lost[queue] = len(bodies) - len(left)
    told = {**report.lost_messages, **report.lost_offsets}
    if report.lost_segments:
        told["lazy"] = told.get("lazy", 0) + report.lost_segment_messages
    assert lost == told
    assert lost
    assert report.messages == sum(map(len, messages.values()))


@pytest.mark.parametrize("harm", [flip, cut, remove])
def test_a_lost_manifest_is_made_again_from_the_other_files(
    damaged: Path, out: Path, everything: dict[str, list[bytes]], harm: Callable[[Path], None]
) -> None:
    harm(damaged / "MANIFEST")
    report = salvage(damaged, out)
    assert report.manifest_made_again
    assert not report.is_lossless  # nobody knows where the journal ended
    assert pyqstore.verify(out).damages == 0
    with pyqstore.open(out) as store:
        assert [binding.source for binding in store.bindings() if binding.source] == ["topics"]
    assert drained(out) == everything


@pytest.mark.parametrize(
    ("harm", "with_manifest"), [(flip, True), (cut, True), (remove, True), (remove, False)]
)
def test_without_its_checkpoint_a_store_has_what_the_journal_has(
    tmp_path: Path, out: Path, harm: Callable[[Path], None], with_manifest: bool
) -> None:
    path, damaged = tmp_path / "open", tmp_path / "damaged"
    rows = [b"%d" % number + b"." * 3000 for number in range(100)]
    with pyqstore.open(path, journal_file_bytes="64KiB", checkpoint_interval=None) as store:
        with store.channel() as channel:
            declare(channel, "before")
            for row in rows:
                channel.basic_publish("", "before", row, PERSISTENT)
                store.sync()
            store.checkpoint()  # gives back the journal before it
            declare(channel, "later")
            for queue in ("before", "later"):
                channel.basic_publish("", queue, b"one more", PERSISTENT)
            store.sync()
        shutil.copytree(path, damaged)
    for file in damaged.glob("checkpoint/*.ckp"):
        harm(file)
    if not with_manifest:
        remove(damaged / "MANIFEST")
    report = salvage(damaged, out)
    assert report.lost_checkpoint
    assert report.manifest_made_again == (not with_manifest)
    assert not report.is_lossless
    assert report.recovered_queues == ["recovered.1"]
    assert pyqstore.verify(out).damages == 0
    messages = drained(out)
    assert messages.keys() == {"later", "recovered.1"}
    assert messages["later"] == [b"one more"]
    before = messages["recovered.1"]  # the file in which the checkpoint lies has more
    assert before == [*rows, b"one more"][-len(before) :]
    assert 0 < len(before) < 50


def test_a_store_that_lost_its_journal_has_what_its_checkpoint_has(
    damaged: Path, out: Path, everything: dict[str, list[bytes]]
) -> None:
    shutil.rmtree(damaged / "journal")
    salvage(damaged, out)
    assert pyqstore.verify(out).damages == 0
    assert drained(out) == everything


def test_a_damaged_commit_costs_what_is_in_it(tmp_path: Path, out: Path) -> None:
    path = tmp_path / "damaged"
    with pyqstore.open(path, checkpoint_bytes=0) as store, store.channel() as channel:
        declare(channel, "q")
        for number in range(20):
            channel.basic_publish("", "q", body_of("q", number), PERSISTENT)
            store.sync()
    journal = max(path.glob("journal/*.jnl"), key=lambda file: file.read_bytes().count(b"q 10 "))
    contents = bytearray(journal.read_bytes())
    contents[contents.index(body_of("q", 10))] ^= 1
    journal.write_bytes(contents)
    report = salvage(path, out)
    assert report.lost_ranges == 1
    assert report.lost_bytes > 0
    assert pyqstore.verify(out).damages == 0
    assert drained(out)["q"] == [body_of("q", number) for number in range(20) if number != 10]


def test_much_damage_at_once_leaves_the_rest(damaged: Path, out: Path) -> None:
    for pattern in ("index/*.seg", "messages/*.msg", "streams/*.str", "journal/*.jnl", "MANIFEST"):
        remove(first(damaged, pattern))
    report = salvage(damaged, out)
    messages = drained(out)
    assert len(messages["small"]) == COUNT
    assert len(messages["ranked"]) == COUNT
    assert sum(map(len, messages.values())) == report.messages


def test_files_that_are_not_the_engines_are_copied(damaged: Path, out: Path) -> None:
    flip(first(damaged, "messages/*.msg"))
    salvage(damaged, out)
    assert (out / "users.json").read_text() == "{}"
    assert (out / "staging" / "spool-1" / "rows").read_bytes() == b"the only copy"


def test_a_link_is_not_followed_and_told(damaged: Path, out: Path, tmp_path: Path) -> None:
    file = first(damaged, "streams/*.str")
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    report = salvage(damaged, out)
    assert report.passed_over == [str(file.relative_to(damaged))]
    assert report.lost_offsets.keys() == {STREAM}


def test_a_salvaged_store_goes_on(damaged: Path, out: Path) -> None:
    flip(first(damaged, "messages/*.msg"))
    remove(first(damaged, "streams/*.str"))
    salvage(damaged, out)
    with pyqstore.open(out) as store, store.channel() as channel:
        channel.confirm_select()
        for queue in (*QUEUES, STREAM):
            channel.basic_publish("", queue, b"more", PERSISTENT)
        channel.basic_publish("topics", "a.b", b"routed", PERSISTENT)
        assert channel.wait_for_confirms(60)
        assert store.queue_status(STREAM).next == 201
    assert drained(out)["small"][-2:] == [b"more", b"routed"]


# ---- what the disk does


def test_places_that_the_disk_cannot_read_are_told(
    damaged: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = first(damaged, "messages/*.msg")
    bad = 2 * 4096
    read = os.pread

    def pread(descriptor: int, count: int, offset: int) -> bytes:
        is_it = os.readlink(f"/proc/self/fd/{descriptor}") == str(file)
        if is_it and offset <= bad < offset + count:
            raise OSError(errno.EIO, "made by the test")
        return read(descriptor, count, offset)

    monkeypatch.setattr(os, "pread", pread)
    report = salvage(damaged, out)
    assert report.unread == [(str(file.relative_to(damaged)), bad, 4096)]
    assert report.lost_messages == {"large": 1}
    assert pyqstore.verify(out).damages == 0


def test_what_the_disk_cannot_read_is_lost_whatever_has_no_checksum(
    damaged: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = damaged / "users.json"
    file.write_text("{}")
    read = os.pread

    def pread(descriptor: int, count: int, offset: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(file):
            raise OSError(errno.EIO, "made by the test")
        return read(descriptor, count, offset)

    monkeypatch.setattr(salvaging.copying, "_shared", lambda _original, _copy: False)
    monkeypatch.setattr(os, "pread", pread)
    assert not salvage(damaged, out).is_lossless


def test_too_little_space_is_told_before_anything_is_copied(
    damaged: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = os.statvfs(damaged)
    numbers = list(told)
    numbers[3] = numbers[4] = 1  # f_bfree, f_bavail
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(numbers))
    monkeypatch.setattr(salvaging.copying, "_shared", lambda _original, _copy: False)
    with pytest.raises(pyqstore.StoreFull, match=r"the copy needs .* make room"):
        salvaging.salvage(damaged, out, nothing_shown)
    assert os.listdir(out.parent) == ["damaged"]


def test_a_disk_that_becomes_full_is_told_and_nothing_is_left(
    damaged: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sync(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(pyqstore.StoreFull, match="became full; nothing is left there"):
        salvaging.salvage(damaged, out, nothing_shown)
    assert os.listdir(out.parent) == ["damaged"]


def test_holes_stay_holes(tmp_path: Path, out: Path) -> None:
    path = tmp_path / "damaged"
    pyqstore.open(path).close()
    sparse = path / "staging" / "spool-1"
    sparse.parent.mkdir(exist_ok=True)
    with sparse.open("wb") as file:
        file.write(b"begin")
        file.seek(1 << 26)
        file.write(b"end")
    salvage(path, out)
    copy = out / "staging" / "spool-1"
    assert copy.read_bytes() == sparse.read_bytes()
    if sparse.stat().st_blocks * 512 < 1 << 20:  # else this file system has none
        assert copy.stat().st_blocks * 512 < 1 << 20


# ---- the end in the middle


CHILD = """
import os, signal, sys
from pathlib import Path
from pyqstore import salvaging

def progress(what, done, total):
    if what == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)

salvaging.salvage(Path(sys.argv[1]), Path(sys.argv[2]), progress)
"""


@pytest.mark.parametrize("when", ["copying", "reading"])
def test_a_salvage_that_is_killed_leaves_no_store_and_the_next_one_names_what_it_left(
    damaged: Path, out: Path, when: str
) -> None:
    flip(first(damaged, "messages/*.msg"))
    before = hashes(damaged)
    child = subprocess.run([sys.executable, "-c", CHILD, damaged, out, when], check=False)
    assert child.returncode == -signal.SIGKILL
    assert hashes(damaged) == before
    (left,) = salvaging.leftovers(out)
    assert sorted(os.listdir(out.parent)) == sorted(["damaged", left.name])
    done = run(damaged, out)
    assert done.exit_code == 1
    assert f"{left} was left by a salvage that was killed" in done.stderr
    assert pyqstore.verify(out).damages == 0


def test_a_salvage_that_is_interrupted_removes_what_it_made(damaged: Path, out: Path) -> None:
    def progress(what: str, _done: int, _total: int) -> None:
        if what == "reading":
            raise KeyboardInterrupt

    flip(first(damaged, "messages/*.msg"))
    before = hashes(damaged)
    with pytest.raises(KeyboardInterrupt):
        salvaging.salvage(damaged, out, progress)
    assert os.listdir(out.parent) == ["damaged"]
    assert hashes(damaged) == before


# ---- what is refused, and what is said


@pytest.fixture
def opened(damaged: Path) -> Iterator[Path]:
    with pyqstore.open(damaged):
        yield damaged


def test_an_open_store_is_refused(opened: Path, out: Path) -> None:
    with pytest.raises(pyqstore.StoreLocked, match="close it first, or go back") as caught:
        salvaging.salvage(opened, out, nothing_shown)
    assert caught.value.pid == os.getpid()
    assert run(opened, out).exit_code == 3
    assert os.listdir(out.parent) == ["damaged"]


def test_places_that_are_no_use_are_refused(damaged: Path, out: Path, tmp_path: Path) -> None:
    out.mkdir()
    (tmp_path / "empty").mkdir()
    for source, target, text in (
        (damaged, out, "is there already"),
        (damaged, damaged / "new", "lies in the store"),
        (damaged, tmp_path / "none" / "new", "No such file or directory"),
        (tmp_path / "none", tmp_path / "new", "no such directory"),
        (tmp_path / "empty", tmp_path / "new", "there is no store"),
    ):
        done = run(source, target)
        assert done.exit_code == 3
        assert text in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["damaged", "empty", "out"]
    assert os.listdir(out) == []


def test_a_store_of_which_nothing_is_left_is_refused(damaged: Path, out: Path) -> None:
    for name in ("MANIFEST", "journal/*", "checkpoint/*"):
        for file in damaged.glob(name):
            file.unlink()
    done = run(damaged, out)
    assert done.exit_code == 1
    assert "nothing can be made of it" in done.stderr
    assert not out.exists()


def test_the_command_tells_what_is_lost(damaged: Path, out: Path) -> None:
    remove(first(damaged, "streams/*.str"))
    done = run(damaged, out)
    assert done.exit_code == 1
    assert f"of stream {STREAM}; the offsets stay, and cannot be read" in done.stdout
    assert f"queues are in {out}; the original is unchanged; keep it" in done.stdout
    shutil.rmtree(out)
    done = run(damaged, out, "--json")
    assert done.exit_code == 1
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["lost_offsets"].keys() == {STREAM}
    assert report["damage"][0]["path"].startswith("streams/")
    assert not report["lossless"]


def test_the_command_says_that_nothing_is_lost(damaged: Path, out: Path) -> None:
    done = run(damaged, out)
    assert done.exit_code == 0
    assert done.stdout.endswith("nothing is lost\n")


def test_errors_of_damage_name_the_command(damaged: Path, tmp_path: Path) -> None:
    remove(first(damaged, "index/*.seg"))
    verified = CliRunner().invoke(main, ["verify", str(damaged)])
    assert f"pyqstore salvage {damaged} OUT copies what is whole" in verified.stdout
    remove(damaged / "MANIFEST")
    with pytest.raises(pyqstore.StoreCorrupt, match="pyqstore salvage DIR OUT copies what is"):
        pyqstore.open(damaged)
    (tmp_path / "stage").mkdir()
    (tmp_path / "stage" / "0.qsb").write_bytes(b"no staged file")
    with pyqstore.open(tmp_path / "other") as store, pytest.raises(pyqstore.StoreCorrupt) as caught:
        store.adopt(tmp_path / "stage", "key")
    assert "salvage" not in str(caught.value)

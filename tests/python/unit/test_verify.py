"""verify(): whole stores are whole, each kind of damage is found and named, nothing changes."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import pyqstore

from ..support import PERSISTENT, get


def files(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != "LOCK"
    }


def fill(store: pyqstore.Store, count: int = 300) -> None:
    """Small and large bodies in two queues, some of them settled."""
    with store.channel() as channel:
        channel.exchange_declare("all", "fanout", durable=True)
        for queue in ("a", "b"):
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "all", "")
        channel.confirm_select()
        for number in range(count):
            size = 6000 if number % 5 == 0 else 60
            channel.basic_publish("all", "", b"%0*d" % (size, number), PERSISTENT)
        for number in range(20):  # of one queue alone: these lie in its segments
            channel.basic_publish("", "a", b"alone%055d" % number, PERSISTENT)
        assert channel.wait_for_confirms(30)
        for _ in range(count // 3):
            message = get(channel, "a")
            message.ack()
    store.sync()


@pytest.fixture
def paged(path: Path) -> Path:
    """A store with segments, message files, a checkpoint, and a journal behind it; not closed."""
    copy = path.with_name("copy")
    with pyqstore.open(
        path, segment_entries=64, checkpoint_bytes=0, journal_file_bytes="64KiB"
    ) as store:
        fill(store)
        for queue in ("a", "b"):
            store.set_queue_mode(queue, "lazy")
            store.queue_status(queue)
        store.checkpoint()
        fill(store, 50)
        shutil.copytree(path, copy)
    return copy


def test_whole_store_is_whole_and_nothing_changes(paged: Path) -> None:
    before = files(paged)
    told: list[tuple[int, int]] = []
    found = pyqstore.verify(paged, progress=lambda *numbers: told.append(numbers))
    assert found.damages == 0
    assert found.damage == ()
    assert found.queues == 2
    assert found.segments >= 8
    assert found.bodies >= 100
    assert found.body_bytes >= 6000 * 100
    assert found.journal_records > 50
    assert found.checkpoint_records > 5
    assert files(paged) == before
    assert told[-1][0] == told[-1][1] > 600_000
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    with pyqstore.open(paged) as store:
        assert store.queue_status("b")["messages_ready"] == 350


def test_closed_and_new_stores_are_whole(path: Path, tmp_path: Path) -> None:
    with pyqstore.open(path) as store:
        fill(store)
    assert pyqstore.verify(path).damages == 0
    pyqstore.open(tmp_path / "new").close()
    assert pyqstore.verify(tmp_path / "new").damages == 0


def damage(file: Path, offset: int) -> None:
    contents = bytearray(file.read_bytes())
    contents[offset] ^= 0x55
    file.write_bytes(contents)


def first(paged: Path, pattern: str) -> Path:
    return min(paged.glob(pattern))


def place_of(file: Path, text: bytes) -> int:
    place = file.read_bytes().index(text)
    assert place > 0
    return place


Where = Callable[[Path], tuple[Path, int]]


def in_body(paged: Path) -> tuple[Path, int]:
    file = first(paged, "messages/*")
    return file, place_of(file, b"%06000d" % 295) + 3000


def in_segment_body(paged: Path) -> tuple[Path, int]:
    for file in sorted(paged.glob("index/*")):
        if (place := file.read_bytes().find(b"alone%055d" % 15)) > 0:
            return file, place + 3
    raise AssertionError


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(lambda paged: (paged / "MANIFEST", 50), id="manifest"),
        pytest.param(lambda paged: (first(paged, "checkpoint/*"), 200), id="checkpoint"),
        pytest.param(lambda paged: (first(paged, "journal/*"), 3 * 4096 + 80), id="journal"),
        pytest.param(in_body, id="body"),
        pytest.param(in_segment_body, id="segment body"),
        pytest.param(lambda paged: (first(paged, "index/*"), 20), id="segment header"),
    ],
)
def test_damage_is_found_and_named(paged: Path, where: Where) -> None:
    file, offset = where(paged)
    damage(file, offset)
    before = files(paged)
    found = pyqstore.verify(paged)
    assert found.damages >= 1
    assert found.damage[0].path == str(file.relative_to(paged))
    assert found.damage[0].offset <= offset
    assert file.name in found.damage[0].text
    assert files(paged) == before


def test_verification_goes_on_behind_damage(paged: Path) -> None:
    names = set()
    for where in (in_body, in_segment_body):
        file, offset = where(paged)
        damage(file, offset)
        names.add(file.name)
    journal = max(paged.glob("journal/*"), key=lambda file: len(file.read_bytes().rstrip(b"\0")))
    assert journal
    found = pyqstore.verify(paged)
    assert {Path(place.path).name for place in found.damage} == names


def test_checkpoint_of_another_length_and_one_with_another_checksum(paged: Path) -> None:
    file = first(paged, "checkpoint/*")
    contents = file.read_bytes()
    damage(file, 200)
    assert ": checksum mismatch" in pyqstore.verify(paged).damage[0].text
    file.write_bytes(contents[:-1])
    text = pyqstore.verify(paged).damage[0].text
    assert f"{len(contents) - 1} bytes; MANIFEST says {len(contents)}" in text


@pytest.mark.parametrize("pattern", ["messages/*", "index/*", "checkpoint/*"])
def test_missing_file_is_damage(paged: Path, pattern: str) -> None:
    file = first(paged, pattern)
    file.unlink()
    found = pyqstore.verify(paged)
    assert found.damages >= 1
    assert file.name in {Path(place.path).name for place in found.damage}


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda file: os.symlink("/dev/zero", file)])
def test_verify_ended_at_what_is_in_the_place_of_a_stream_file(
    path: Path, make: Callable[[Path], None]
) -> None:
    with pyqstore.open(path, checkpoint_bytes=0) as store, store.channel() as channel:
        for stream in ("a", "b"):
            channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
            channel.basic_publish("", stream, bytes(300_000), PERSISTENT)
        store.checkpoint()
    file, other = sorted((path / "streams").iterdir())
    file.unlink()
    make(file)
    other.write_bytes(other.read_bytes()[:-2000])
    found = pyqstore.verify(path)
    assert [Path(place.path).name for place in found.damage] == [file.name, other.name]
    assert re.search("not a regular file|symbolic link", found.damage[0].text)


def test_missing_directory_is_damage(paged: Path) -> None:
    shutil.rmtree(paged / "index")
    assert [place.path for place in pyqstore.verify(paged).damage] == ["index"]
    assert not (paged / "index").exists()


def test_torn_tail_is_no_damage(path: Path, tmp_path: Path) -> None:
    with pyqstore.open(path, checkpoint_bytes=0) as store:
        fill(store)
        shutil.copytree(path, tmp_path / "copy")
    journal = first(tmp_path / "copy", "journal/*")
    contents = journal.read_bytes()
    used = len(contents.rstrip(b"\0"))
    journal.write_bytes(contents[: used - 8] + bytes(len(contents) - used + 8))
    assert pyqstore.verify(tmp_path / "copy").damages == 0
    with pyqstore.open(tmp_path / "copy") as store:
        assert store.recovery_report["torn_bytes"] > 0


def test_bodies_of_settled_messages_may_be_gone(path: Path, tmp_path: Path) -> None:
    with pyqstore.open(path, checkpoint_bytes=0) as store:
        fill(store)
        with store.channel() as channel:
            for queue in ("a", "b"):
                channel.queue_purge(queue)
        store.sync()
        shutil.copytree(path, tmp_path / "copy")
    for file in (tmp_path / "copy").glob("messages/*"):
        file.unlink()
    assert pyqstore.verify(tmp_path / "copy").damages == 0


def test_no_store_and_open_store_are_refused(path: Path) -> None:
    with pytest.raises(pyqstore.StoreNotFound):
        pyqstore.verify(path)
    path.mkdir(0o700)
    with pytest.raises(pyqstore.StoreNotFound):
        pyqstore.verify(path)
    assert os.listdir(path) == []
    with pyqstore.open(path), pytest.raises(pyqstore.StoreLocked):
        pyqstore.verify(path)


def test_what_progress_raises_ends_it(paged: Path) -> None:
    def progress(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pyqstore.verify(paged, progress=progress)
    assert pyqstore.verify(paged).damages == 0


def cut(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - 1)


def extend(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"x")


def opens_and_reads(path: Path) -> bool:
    """Whether a strict open succeeds, and every message can be read."""
    try:
        with pyqstore.open(path, create=False) as store, store.channel() as channel:
            for queue in store.recovery_report.queues:
                while channel.basic_get(queue) is not None:
                    pass
    except pyqstore.StoreCorrupt:
        return False
    return True


@pytest.mark.parametrize("change", [cut, extend, Path.unlink])
@pytest.mark.parametrize("is_closed", [True, False])
def test_verify_found_nothing_in_a_store_that_open_refused(
    paged: Path, tmp_path: Path, change: Callable[[Path], None], is_closed: bool
) -> None:
    """Among them: one byte of padding cut from a message file."""
    if is_closed:
        pyqstore.open(paged).close()
    trial = tmp_path / "trial"
    verdicts = set()
    for name in files(paged):
        shutil.copytree(paged, trial)
        change(trial / name)
        try:
            is_whole = pyqstore.verify(trial).damages == 0
        except pyqstore.StoreNotFound:
            is_whole = False
        assert is_whole == opens_and_reads(trial), name
        verdicts.add(is_whole)
        shutil.rmtree(trial)
    assert False in verdicts


def refusal(call: Callable[[Path], object], path: Path) -> str:
    """What the call raises, without the path of the store that stands in front."""
    try:
        call(path)
    except pyqstore.StoreError as error:
        return str(error).rpartition(": ")[2]
    return ""


def open_once(path: Path) -> None:
    pyqstore.open(path).close()


def test_verify_refuses_a_file_with_two_names_where_opening_does(
    paged: Path, tmp_path: Path
) -> None:
    """Opening writes to some files, and the file of the other name would change with them.
    Segments are opened later, when their messages are wanted."""
    refused = set()
    for name in files(paged):
        tried = tmp_path / "tried"
        shutil.copytree(paged, tried)
        os.link(tried / name, tmp_path / "second name")
        found = refusal(pyqstore.verify, tried)
        said = refusal(open_once, tried)
        assert said in ("", found), name
        if said:
            assert "has other names" in said
            refused.add(Path(name).parent.name)
        (tmp_path / "second name").unlink()
        shutil.rmtree(tried)
    assert refused >= {"checkpoint", "journal", "messages"}

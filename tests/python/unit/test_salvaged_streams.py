"""Salvage of streams and their work queues: a damaged page of the journal costs one commit."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore

from ..adopting import named

PAGE = 4096
STREAM, WORK = "events", "work"


class Publisher:
    """Each commit is a list of bodies, durable before the next one begins."""

    def __init__(self, store: pyqstore.Store) -> None:
        self.store = store
        self.channel = store.channel()
        self.commits: list[list[bytes]] = []
        self.channel.queue_declare(
            STREAM,
            durable=True,
            arguments={"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 16384},
        )
        self.channel.queue_declare(
            WORK, durable=True, arguments={"x-stream-source": STREAM, "x-stream-offset": "first"}
        )
        store.sync()

    def publish(self, count: int, size: int) -> None:
        """In one batch: 64 KiB and more is written directly."""
        bodies = [b"%d %d " % (len(self.commits), row) + b"." * size for row in range(count)]
        self.channel.publish_batch(pa.table({"body": bodies}), routing_key=STREAM)
        self.store.sync()
        self.commits.append(bodies)


@pytest.fixture
def crashed(tmp_path: Path) -> tuple[Path, list[list[bytes]]]:
    """A store as a killed process leaves it, and its commits: some before two batches that were
    written directly, some between them and some behind."""
    with pyqstore.open(
        tmp_path / "open", journal_file_bytes="256KiB", checkpoint_interval=None
    ) as store:
        publisher = Publisher(store)
        for _ in range(2):
            for _ in range(3):
                publisher.publish(4, 60)
            publisher.publish(44, 3800)
        for _ in range(3):
            publisher.publish(4, 60)
        shutil.copytree(tmp_path / "open", tmp_path / "crashed")
        return tmp_path / "crashed", publisher.commits


def without_a_page(path: Path) -> Iterator[Path]:
    """Copies, each with another page of the journal zeroed."""
    for file in sorted((path / "journal").iterdir()):
        data = file.read_bytes()
        for at in range(PAGE, len(data), PAGE):
            if any(data[at : at + PAGE]):
                copy = path.parent / "copy"
                shutil.copytree(path, copy)
                (copy / "journal" / file.name).write_bytes(
                    data[:at] + bytes(PAGE) + data[at + PAGE :]
                )
                yield copy
                shutil.rmtree(copy)


def rows_of(store: pyqstore.Store, name: str) -> list[bytes]:
    return [body for batch in store.browse(name) for body in batch["body"].to_pylist()]


def salvaged(path: Path) -> dict[str, list[bytes]]:
    """What the stream has, and what its work queue gives out; nothing of one whose declaration was
    in the page."""
    found: dict[str, list[bytes]] = {}
    with pyqstore.open(path, recovery="salvage") as store, store.channel() as channel:
        if STREAM not in store.queues():
            return found
        found[STREAM] = rows_of(store, STREAM)
        if WORK in store.queues():
            found[WORK] = []
            while (message := channel.basic_get(WORK)) is not None:
                found[WORK].append(message.body)
    return found


def test_a_page_of_the_journal_cost_a_stream_more_than_one_commit(
    crashed: tuple[Path, list[list[bytes]]],
) -> None:
    """Of the first batch, and what is before it, nothing is lost: the record of the next one names
    the same files again."""
    path, commits = crashed
    complete = losses = 0
    for copy in without_a_page(path):
        found = salvaged(copy)
        complete += len(found) == 2
        for bodies in found.values():
            lost = [commit for commit in commits if commit[0] not in bodies]
            losses += len(lost)
            assert len(lost) <= 1
            assert not any(commit in commits[:4] for commit in lost)
            assert bodies == [body for commit in commits if commit not in lost for body in commit]
        assert found.get(WORK, found.get(STREAM)) == found.get(STREAM)
    assert complete > len(commits) / 2
    assert losses > 0


# ---- a declaration that is lost ----


def without_pages(path: Path, copy: Path, wanted: Callable[[bytes], bool]) -> Path:
    """A copy without the pages of the journal that are wanted."""
    shutil.copytree(path, copy)
    for file in sorted((copy / "journal").iterdir()):
        data = bytearray(file.read_bytes())
        for at in range(PAGE, len(data), PAGE):
            if wanted(bytes(data[at : at + PAGE])):
                data[at : at + PAGE] = bytes(PAGE)
        file.write_bytes(data)
    return copy


def declares(page: bytes) -> bool:
    return b"x-queue-type" in page


def test_salvage_left_out_the_files_of_a_stream_whose_declaration_was_lost(
    crashed: tuple[Path, list[list[bytes]]], tmp_path: Path
) -> None:
    """Without a word; and the next open that was strict removed them."""
    path, commits = crashed
    everything = [body for commit in commits for body in commit]
    copy = without_pages(path, tmp_path / "copy", declares)
    with pyqstore.open(copy, recovery="salvage") as store:
        assert "recovered.1" in store.queues()
        assert (store.stats().lost_ranges, store.stats().recovered_queues) == (1, 1)
        assert rows_of(store, "recovered.1") == everything
        store.checkpoint()
    with pyqstore.open(copy) as store, store.channel() as channel:
        assert rows_of(store, "recovered.1") == everything
        channel.publish_batch(pa.table({"body": [b"more"]}), routing_key="recovered.1")
        store.sync()
        assert rows_of(store, "recovered.1") == [*everything, b"more"]


def test_salvage_left_out_what_was_adopted_into_a_stream_whose_declaration_was_lost(
    tmp_path: Path, stage: Path
) -> None:
    with pyqstore.StagedWriter(stage / "0.qsb", routing_key=STREAM) as writer:
        writer.write_batch(pa.table({"body": named(500)}))
    with pyqstore.open(tmp_path / "open", checkpoint_interval=None) as store:
        publisher = Publisher(store)
        publisher.publish(4, 60)
        assert store.adopt(stage, "key").linked == 1
        publisher.publish(4, 60)
        shutil.copytree(tmp_path / "open", tmp_path / "crashed")
    copy = without_pages(tmp_path / "crashed", tmp_path / "copy", declares)
    with pyqstore.open(copy, recovery="salvage") as store:
        first, last = publisher.commits
        assert rows_of(store, "recovered.1") == [*first, *named(500), *last]


def test_salvage_keeps_messages_of_a_stream_whose_files_before_them_are_lost(
    tmp_path: Path,
) -> None:
    """The last record of files does not name those of the first."""
    with pyqstore.open(
        tmp_path / "open", journal_file_bytes="256KiB", checkpoint_interval=None
    ) as store:
        publisher = Publisher(store)
        for _ in range(3):
            publisher.publish(4, 60)
            publisher.publish(44, 3800)
        shutil.copytree(tmp_path / "open", tmp_path / "crashed")
    files = 0

    def is_lost(page: bytes) -> bool:
        nonlocal files
        if page[:4] != b"QSJB" or b"." * 60 in page or b"x-stream-source" in page:
            return False  # a mark, messages, the work queue
        files += not declares(page)
        return declares(page) or files <= 2

    copy = without_pages(tmp_path / "crashed", tmp_path / "copy", is_lost)
    assert files == 3
    with pyqstore.open(copy, recovery="salvage") as store:
        journalled = [body for commit in publisher.commits[::2] for body in commit]
        assert rows_of(store, "recovered.1") == journalled
        assert store.stats().lost_ranges == 4  # and the record of the files behind them

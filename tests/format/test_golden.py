"""Stores that earlier versions wrote are read, verified, upgraded and drained as they were then."""

import contextlib
import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
from pyqstore.fields import decode_table
from pyqstore.listings import queues_of

from .contents import drain, files_of, look, plain, streams_of, unpack
from .records import (
    COLUMNS,
    FLAGS,
    MESSAGES,
    TIMES,
    Manifest,
    Record,
    bodies_in_place,
    checkpoint_records,
    journal_records,
    kinds,
    records,
)

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
V1 = HERE / "v1"
NAMES = sorted(path.name.removesuffix(".tar.xz") for path in V1.glob("*.tar.xz"))
ENUM = re.compile(r"QSI_RECORD_([A-Z_]+) = (\d+),")
KINDS = re.compile(r"QSI_SETTLE_[A-Z_]+ = (\d+),")
FLAG_BITS = re.compile(r"#define QSI_MESSAGES_FLAGS (\d+)")
BLOCKS = {"messages, one row", "messages, several rows"}


def expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((V1 / f"{name}.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(name: str, tmp_path: Path) -> Path:
    return unpack(V1 / f"{name}.tar.xz", tmp_path / "store")


def test_store_of_an_earlier_version_is_looked_into_and_not_changed(name: str, store: Path) -> None:
    before = files_of(store)
    assert plain(look(store)) == expected(name)["look"]
    assert plain(look(store)) == expected(name)["look"]
    after = files_of(store)
    assert after.pop("LOCK") is not None
    assert before.pop("LOCK") is not None
    assert after == before


def test_store_of_an_earlier_version_is_verified(store: Path) -> None:
    before = Manifest.of(store)
    verification = pyqstore.verify(store)
    assert verification.damages == 0, verification.damage
    assert verification.queues > 0
    checkpoint = store / "checkpoint" / f"{before.checkpoint:010d}.ckp"
    if before.checkpoint:
        assert verification.checkpoint_records == len(list(checkpoint_records(checkpoint)))
    else:
        assert verification.journal_records == sum(
            len(list(journal_records(path))) for path in (store / "journal").glob("*.jnl")
        )
    assert Manifest.of(store) == before


def test_store_of_an_earlier_version_is_drained_as_it_was_then(name: str, store: Path) -> None:
    known = expected(name)
    found = plain(drain(store, known["keys"], known["forgotten"]))
    assert found.pop("known") == known["keys"]
    assert found == known["drain"]
    assert pyqstore.verify(store).damages == 0
    again = drain(store, known["keys"], known["forgotten"])
    assert again["known"] == known["keys"]
    assert not any(again["queues"].values())
    assert plain(again["delayed"]) == known["drain"]["delayed"]
    assert plain(again.get("streams")) == known["drain"].get("streams")  # reading takes nothing


def test_store_of_an_earlier_version_goes_on_with_new_messages(name: str, store: Path) -> None:
    """Old and new records side by side, through a checkpoint and another session."""
    rows = pa.table({"body": [f"new {row:04d}".ljust(64, "x").encode() for row in range(500)]})
    queue = min(expected(name)["look"]["queues"])
    with pyqstore.open(store, create=False) as opened:
        opened.accept_clock()
        with opened.channel() as channel:
            channel.confirm_select()
            channel.publish_batch(
                rows, routing_key=queue, properties=pyqstore.Properties(delivery_mode=2)
            )
            assert channel.wait_for_confirms(60)
        for stream in streams_of(opened).values():
            stream.publish_batch(rows)
    assert Manifest.of(store).incompatible & 1
    assert any(record.flags & 32 for record in records(store) if record.type == MESSAGES)
    known = expected(name)
    found = plain(drain(store, known["keys"], known["forgotten"]))
    assert [message[:5] for message in found["queues"][queue][:-500]] == (
        known["drain"]["queues"][queue]
    )
    assert len(found["queues"][queue]) == len(known["drain"]["queues"][queue]) + 500
    for stream, then in known["drain"].get("streams", {}).items():
        read = found["streams"][stream]
        first = read["rows"][0][0]  # there may be more than it keeps
        assert read["rows"][:-500] == [row for row in then["rows"] if row[0] >= first]
        assert [row[1] for row in read["rows"][-500:]] == [
            row[0] for row in found["queues"][queue][-500:]
        ]
        assert read["groups"] == then["groups"]
    assert pyqstore.verify(store).damages == 0


def test_archive_holds_what_is_written_down_of_it(name: str, store: Path) -> None:
    assert sorted(kinds(store)) == expected(name)["kinds"]


def all_kinds() -> set[str]:
    return {kind for name in NAMES for kind in expected(name)["kinds"]}


def record_headers() -> str:
    """Framing and types of records, and what each kind of record has of its own."""
    headers = sorted((ROOT / "csrc" / "codec").glob("*.h"))
    return "".join(header.read_text(encoding="utf-8") for header in headers)


def test_every_record_of_the_format_is_in_a_golden_store() -> None:
    """The numbers are the engine's own: a new one fails here until a store with it is written."""
    header = record_headers()
    types = {int(number) for _, number in ENUM.findall(header)}
    settles = {int(number) for number in KINDS.findall(header)}
    (flags,) = FLAG_BITS.findall(header)
    assert int(flags) == sum(FLAGS), "records.py knows all flags"
    assert len(types) >= 19
    assert len(settles) >= 6
    wanted = {f"record {number}" for number in types} | {f"settle {number}" for number in settles}
    wanted |= {f"messages, {flag}" for flag in FLAGS.values()} | BLOCKS
    assert wanted - all_kinds() == set()


def test_every_type_of_record_is_in_the_format_s_description() -> None:
    header = record_headers()
    text = (ROOT / "docs" / "FORMAT.md").read_text(encoding="utf-8")
    table = text[text.index("| type | record | type | record |") :]
    table = table[: table.index("\n\n")]
    described = {
        int(cell)
        for line in table.splitlines()
        for cell in line.split("|")
        if cell.strip().isdigit()
    }
    assert described == {int(number) for _, number in ENUM.findall(header)}


def test_every_file_of_the_format_is_in_a_golden_store() -> None:
    """Each magic of the engine's sources is of a file that one of the stores has."""
    found = {
        magic
        for path in (ROOT / "csrc").rglob("*.[ch]")
        for magic in re.findall(r'MAGIC[A-Z_]* "(QS[A-Z0-9]+)', path.read_text(encoding="utf-8"))
    }
    of_magic = {
        "QSMANIF1": "MANIFEST",
        "QSJOURN1": "journal file",
        "QSJMARK1": "mark",
        "QSJB": "journal file",
        "QSCHECK1": "checkpoint",
        "QSKEYSF": "key file",
        "QSMESSG": "message file",
        "QSBD": "message file",
        "QSSEGMT": "segment, dense",
        "QSSEGST": "segment state",
        "QSBLOCK": "block file",
        "QSINBOX1": "inbox manifest",
    }
    assert found <= set(of_magic), "a kind of file without a golden store"
    wanted = {of_magic[magic] for magic in of_magic} | {"LOCK", "RESERVE"}
    wanted |= {"segment, packed", "transient segment", "message file, rewritten"}
    wanted |= {f"segment state, {column}" for column in COLUMNS.values()}
    wanted |= {"block file, sealed", "block file, adopted"} | {f"block, {times}" for times in TIMES}
    wanted.add("inbox answer")
    assert wanted - all_kinds() == set()


def _notes(store: Path) -> list[bytes]:
    while True:
        with contextlib.suppress(FileNotFoundError):  # its owner renames them meanwhile
            notes = sorted((store / "inbox").iterdir())
            return [note.read_bytes() for note in notes if note.suffix != ".tmp"]


def test_manifests_of_an_earlier_version_are_answered(tmp_path: Path) -> None:
    """The one whose key is known, and the one whose files are gone; an answer stays."""
    store = unpack(V1 / "asked.tar.xz", tmp_path / "store")
    assert sorted(note[8] for note in _notes(store)) == [1, 1, 2]
    (answer,) = (note for note in _notes(store) if note[8] == 2)
    with pyqstore.open(store, create=False):
        end = time.monotonic() + 60
        while [note[8] for note in _notes(store)] != [2, 2, 2] and time.monotonic() < end:
            time.sleep(0.01)
    answers = _notes(store)
    assert [note[8] for note in answers] == [2, 2, 2]
    assert answer in answers
    statuses = [int.from_bytes(note[16:20], "little") for note in answers]
    assert sorted(bool(status) for status in statuses) == [False, False, True]
    assert any(b"/nowhere/one.qsb" in note for note in answers)


def test_stores_from_before_a_feature_are_kept_beside_those_with_it(tmp_path: Path) -> None:
    """Records without aligned columns, of every length, stay readable."""
    store = unpack(V1 / "before_aligned.tar.xz", tmp_path / "store")
    assert Manifest.of(store).incompatible == 0
    long = [r for r in records(store) if r.type == MESSAGES and len(r.data) >= 16 << 10]
    assert long
    assert not any(record.flags & 32 for record in long)
    with_it = unpack(V1 / "aligned.tar.xz", tmp_path / "with it")
    assert Manifest.of(with_it).incompatible == 1


def test_an_unknown_feature_is_refused_and_the_store_not_touched(tmp_path: Path) -> None:
    store = unpack(V1 / "aligned.tar.xz", tmp_path / "store")
    data = bytearray((store / "MANIFEST").read_bytes())
    data[12] |= 128
    data[-4:] = pyqstore.codec.crc32c(bytes(data[:-4])).to_bytes(4, "little")
    (store / "MANIFEST").write_bytes(data)
    before = files_of(store)
    with pytest.raises(pyqstore.StoreError, match="features 0x81"):
        pyqstore.open(store, create=False)
    with pytest.raises(pyqstore.StoreError, match="features 0x81"):
        pyqstore.open(store, read_only=True, create=False)
    assert {name: data for name, data in files_of(store).items() if name != "LOCK"} == {
        name: data for name, data in before.items() if name != "LOCK"
    }


# ---- aligned columns ----


def test_arguments_that_make_no_sense_are_ignored_and_kept(tmp_path: Path) -> None:
    store = unpack(V1 / "unknown.tar.xz", tmp_path / "store")
    for _ in range(2):
        with pyqstore.open(store, create=False) as opened:
            assert opened.recovery_report.ignored_arguments == 9
            stored = {row.name: decode_table(row.arguments) for row in queues_of(opened)}
            opened.checkpoint()
    assert stored["an age"] == {"x-message-ttl": "soon", "x-nobody-knows": 7}
    assert stored["log, an age"]["x-max-age"] == "7 parsecs"
    assert stored["work, a boolean"]["x-stream-pin"] == "yes"
    assert stored["knows nothing"]["x-nested"] == {"a": {"b": 1}}


def bodies_of(store: Path) -> list[tuple[Record, pa.BinaryArray]]:
    return [
        (record, bodies_in_place(record))
        for record in records(store)
        if record.type == MESSAGES and record.flags & 32
    ]


@pytest.mark.parametrize("size", [1, 64, 777])
def test_bodies_of_a_batch_are_an_arrow_array_in_the_journal_file(
    tmp_path: Path, size: int
) -> None:
    bodies = [f"{row:06d}".ljust(size, ".").encode()[: size + row % 7] for row in range(5_000)]
    path = tmp_path / "store"
    with pyqstore.open(path, checkpoint_bytes=0) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.publish_batch(
            pa.table({"body": bodies}),
            routing_key="q",
            properties=pyqstore.Properties(delivery_mode=2),
        )
        store.sync()
    found = bodies_of(path)
    assert found
    assert [body.as_py() for _, array in found for body in array] == bodies


def test_aligned_columns_cost_less_than_a_hundredth(tmp_path: Path) -> None:
    """A batch of 100 bytes a row, in records that are as long as they come and in short ones."""
    for rows in (150, 1_000, 20_000):
        path = tmp_path / f"{rows}"
        with pyqstore.open(path, checkpoint_bytes=0) as store, store.channel() as channel:
            channel.queue_declare("q", durable=True)
            channel.publish_batch(
                pa.table({"body": [bytes(100)] * rows}),
                routing_key="q",
                properties=pyqstore.Properties(delivery_mode=2),
            )
            store.sync()
        used = sum(len(record.data) for record in records(path) if record.type == MESSAGES)
        assert used / rows < 104 * 1.01 + 2
        shutil.rmtree(path)

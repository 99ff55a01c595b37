"""``pyqstore export`` and ``pyqstore import``: on a store that this process has open, and on the
same one closed.  Files are written and read by the commands themselves, or by pyarrow."""

import datetime
import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import pyqstore
from pyqstore import Properties
from pyqstore.cli import main, writing
from pyqstore.control.operations import OPERATIONS, Operation
from pyqstore.control.talk import Talk
from pyqstore.control.wire import Report

from ..support import PERSISTENT, get, sent, wait_until

FORMATS = ["parquet", "jsonl"]
UTC = datetime.UTC


def run(*arguments: object, stdin: str | bytes = "", status: int = 0) -> str:
    done = CliRunner().invoke(main, [*map(str, arguments)], input=stdin)
    assert done.exit_code == status, done.output
    return done.output


@pytest.fixture(params=["open", "closed"])
def place(path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The directory of a store, which is open here or nowhere, with queues "q" and "to"."""
    with pyqstore.open(path) as store, store.channel() as channel:
        for name in ("q", "to"):
            channel.queue_declare(name, durable=True)
    if request.param == "closed":
        yield path
    else:
        with pyqstore.open(path):
            yield path


def seen(path: Path, queue: str) -> list[dict[str, Any]]:
    lines = run("export", path, queue, "-").splitlines()
    return [json.loads(line) for line in lines]


def bodies(path: Path, queue: str) -> list[str]:
    return [row["body"] for row in seen(path, queue)]


TRICKY = [
    Properties(),
    Properties(delivery_mode=1),
    Properties(delivery_mode=2, headers={}),
    Properties(delivery_mode=2, headers={"a": "text", "b": "\xe4\x1b[2J"}),
    Properties(
        delivery_mode=2,
        headers={
            "n": 1, "long": 2**40, "yes": True, "f": 1.5, "nan": float("nan"), "none": None,
            "bytes": b"\xff\x00", "dec": Decimal("1.50"), "list": [1, "x", {"y": b"z"}],
            "time": datetime.datetime(2026, 1, 31, tzinfo=UTC), "table": {"base64": "eA=="},
        },
    ),
    Properties(
        content_type="text/plain", content_encoding="gzip", delivery_mode=2, priority=255,
        correlation_id="c", reply_to="r", expiration=86_400_000, message_id="m",
        timestamp=1_700_000_000, type="t", user_id="u", app_id="a",
    ),
    Properties(delivery_mode=2, cluster_id="c"),
    Properties(delivery_mode=2, message_id="\udcff", headers={"\udcff": "x"}),
    Properties(delivery_mode=2, timestamp=2**64 - 1),
    Properties(delivery_mode=2, timestamp=0, priority=0),
    sent(delivery_mode=2, expiration="0086400000"),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
def test_import_gives_back_the_properties_that_were_exported(
    path: Path, tmp_path: Path, form: str
) -> None:
    file = tmp_path / f"file.{form}"
    with pyqstore.open(path) as store, store.channel() as channel:
        for name in ("q", "to"):
            channel.queue_declare(name, durable=True)
        for number, properties in enumerate(TRICKY):
            channel.basic_publish("", "q", b"\xff%d" % number, properties)
        before = store.queue_status("q")
        run("export", path, "q", file)
        assert store.queue_status("q").messages_ready == before.messages_ready
        assert f"{len(TRICKY)} messages imported into to" in run("import", path, "to", file)
        for number, properties in enumerate(TRICKY):
            message = get(channel, "to", auto_ack=True)
            assert message.body == b"\xff%d" % number
            assert message.properties.encoded == properties.encoded, properties
        first = channel.basic_get("q")
        assert first is not None  # exporting delivered nothing
        assert (first.redelivered, first.delivery_count) == (False, 0)


@pytest.mark.parametrize("form", FORMATS)
def test_export_and_import_of_many_messages_keep_their_order(
    place: Path, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_GROUP_ROWS", 700)
    file = tmp_path / f"file.{form}"
    run("publish", place, "q", stdin="".join(f"{number}\n" for number in range(2345)))
    assert json.loads(run("export", place, "q", file, "--json")) == {"exported": 2345, "damages": 0}
    if form == "parquet":
        about = pq.ParquetFile(file).metadata
        groups = [about.row_group(n).num_rows for n in range(about.num_row_groups)]
        assert groups == [1000, 1000, 345]
    assert json.loads(run("import", place, "to", file, "--json")) == {"imported": 2345}
    assert bodies(place, "to") == [str(number) for number in range(2345)]
    assert [each.name for each in tmp_path.glob(".*")] == []


def test_parquet_has_the_columns_of_browse(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "file.parquet"
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        for properties in TRICKY[3], TRICKY[5]:
            channel.basic_publish("", "q", b"x", properties)
        channel.basic_publish("", "q", b"y", PERSISTENT)
        channel.basic_get("q")
        run("export", path, "q", file)
        found = pq.read_table(file)
        (batch,) = store.browse("q")
    assert found.column_names == [*batch.schema.names, "properties_amqp"]
    assert found["properties_amqp"].to_pylist() == [None, None, None]
    for name in batch.schema.names:
        assert found[name].to_pylist() == batch[name].to_pylist(), name


def test_exported_parquet_of_a_stream_has_the_columns_of_read_and_its_times(
    place: Path, tmp_path: Path
) -> None:
    run("declare", place, "s", "--stream")
    run("publish", place, "s", "--property", "timestamp=7", stdin="a\nb\nc\nd\n")
    file, lines = tmp_path / "file.parquet", tmp_path / "file.jsonl"
    run("export", place, "s", file, "--from", 1, "--limit", 2)
    run("export", place, "s", lines, "--to", 3)
    found = pq.read_table(file)
    assert found["offset"].to_pylist() == [1, 2]
    assert found["body"].to_pylist() == [b"b", b"c"]
    assert [each.timestamp() for each in found["message_timestamp"].to_pylist()] == [7, 7]
    times = [row["timestamp"] for row in map(json.loads, lines.read_text().splitlines())]
    offsets_1_and_2 = [datetime.datetime.fromisoformat(each) for each in times[1:]]
    assert found["timestamp"].to_pylist() == offsets_1_and_2
    run("import", place, "s", file)
    run("import", place, "to", lines)
    rows = seen(place, "s")
    assert [(row["offset"], row["body"]) for row in rows[4:]] == [(4, "b"), (5, "c")]
    assert rows[4]["properties"]["timestamp"] == 7
    assert rows[4]["timestamp"] > times[1]
    assert bodies(place, "to") == ["a", "b", "c"]


def test_times_of_a_stream_are_those_that_reading_it_gives(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "file.parquet"
    with pyqstore.open(path) as store:
        stream = store.stream("s")
        for number in range(3):
            stream.publish_batch(pa.table({"body": [b"%d" % number] * 3000}))
        run("export", path, "s", file)
        whole = stream.read().read_all()
    assert pq.read_table(file)["timestamp"].to_pylist() == whole["timestamp"].to_pylist()


def test_export_replaces_a_file_only_with_force_and_nothing_that_is_no_file(
    place: Path, tmp_path: Path
) -> None:
    file = tmp_path / "file.jsonl"
    file.write_text("mine")
    run("publish", place, "q", "--body", "x")
    assert "--force replaces it" in run("export", place, "q", file, status=3)
    assert file.read_text() == "mine"
    run("export", place, "q", file, "--force")
    assert json.loads(file.read_text())["body"] == "x"
    assert "is no file" in run("export", place, "q", "/dev/null", "--format", "jsonl", "--force",
                               status=3)  # fmt: skip
    assert "say --format" in run("export", place, "q", tmp_path / "file.txt", status=2)
    assert "no queue 'none'" in run("export", place, "none", tmp_path / "n.parquet", status=3)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file.jsonl", "store"]


@pytest.mark.parametrize("form", FORMATS)
def test_export_that_fails_leaves_the_old_file_and_nothing_else(
    path: Path, tmp_path: Path, form: str
) -> None:
    with pyqstore.open(path) as store:
        store.queue("q")
    run("publish", path, "q", stdin="".join(f"{number * 7919}\n" for number in range(5000)))
    folder = tmp_path / "out"
    folder.mkdir()
    file = folder / f"file.{form}"
    file.write_text("old")

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))

    with pyqstore.open(path):
        done = subprocess.run(
            [sys.executable, "-m", "pyqstore", "export", path, "q", file, "--force"],
            preexec_fn=small,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1, done.stderr
    assert f"File too large: '{file}'" in done.stderr
    assert [each.read_text() for each in folder.iterdir()] == ["old"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"body": "x", "properties": {"priority": 300}}', "column priority: priority must be"),
        ('{"body": "x", "properties": {"priorty": 3}}', "column priorty: there is no such"),
        ('{"body": "x", "properties": {"headers": {"h": [1e400]}}}', None),
        ('{"body": 7}', "column body: must be text"),
        ('{"body": "\\ud800"}', "column body: "),
        ('{"body_base64": "!"}', "column body_base64: "),
        ('{"body": "x", "body_base64": "eA=="}', "either body or body_base64"),
        ('{"bodi": "x"}', "column bodi: there is no such field"),
        ('{"body": "x", "routing_key": 5}', "column routing_key: must be text"),
        ('{"body": "x", "properties_amqp_base64": "AQ=="}', "column properties_amqp_base64: "),
        ('{"body": "x", "properties_amqp_base64": "", "properties": {"priority": 3}}',
         "column priority: it is not what properties_amqp_base64 says"),
        ("[1]", "a message is a JSON object"),
        ("{", ": "),
        ("[" * 100_000, ": "),
    ],
)  # fmt: skip
def test_bad_line_is_named_and_those_before_it_are_in(
    path: Path, tmp_path: Path, line: str, words: str | None
) -> None:
    file = tmp_path / "file.jsonl"
    before = [json.dumps({"body": str(number)}) for number in range(502)]
    file.write_text("\n".join([*before, "", line, before[0], ""]))
    with pyqstore.open(path) as store:
        store.queue("to")
        if words is None:
            run("import", path, "to", file)
            assert len(bodies(path, "to")) == 504
            return
        output = run("import", path, "to", file, status=3)
        assert output.startswith(f"pyqstore: {file}, line 504")
        assert words in output
        assert "502 rows before it are imported; --skip 502 goes on behind them" in output
        assert bodies(path, "to") == [str(number) for number in range(502)]
        assert "1 messages imported" in run("import", path, "to", file, "--skip", 503)


def test_row_without_a_delivery_mode_is_persistent(place: Path, tmp_path: Path) -> None:
    run("import", place, "to", "-", stdin='{"body": "x", "properties": {"priority": 3}}')
    file = tmp_path / "file.parquet"
    pq.write_table(pa.table({"body": ["y"], "message_id": ["m"]}), file)
    run("import", place, "to", file)
    assert [row["properties"] for row in seen(place, "to")] == [
        {"delivery_mode": 2, "priority": 3},
        {"delivery_mode": 2, "message_id": "m"},
    ]


def test_bad_row_of_parquet_is_named_and_those_before_it_are_in(
    place: Path, tmp_path: Path
) -> None:
    file = tmp_path / "file.parquet"
    bodies_given = [f"{number}" for number in range(600)]
    table = pa.table({"body": bodies_given, "priority": [1] * 555 + [999] + [1] * 44})
    pq.write_table(table, file, row_group_size=550)
    output = run("import", place, "to", file, status=3)
    assert f"{file}, row 556, column priority: priority must be 0 to 255" in output
    assert "555 rows before it are imported" in output
    assert bodies(place, "to") == bodies_given[:555]
    pq.write_table(pa.table({"body": ["x", None]}), file)
    assert "row 2, column body: must be text or bytes" in run("import", place, "to", file, status=3)


def test_parquet_with_other_columns_is_refused_before_anything_is_published(
    place: Path, tmp_path: Path
) -> None:
    file = tmp_path / "file.parquet"
    pq.write_table(pa.table({"body": [b"x"], "prioriti": [1]}), file)
    assert "column prioriti: a message has no such column" in run(
        "import", place, "to", file, status=3
    )
    assert bodies(place, "to") == []
    run("import", place, "to", file, "--ignore-unknown")
    assert bodies(place, "to") == ["x"]
    pq.write_table(pa.table({"text": [b"x"]}), file)
    assert "it has no column body" in run("import", place, "to", file, status=3)
    file.write_bytes(b"PAR1" + b"x" * 100)
    assert "no whole Parquet file" in run("import", place, "to", file, status=3)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("body", pa.array(["x"], pa.large_string())),
        ("body", pa.array([b"x"], pa.binary(1))),
        ("body", pa.array(["x"]).dictionary_encode()),
        ("timestamp", pa.array([7_500_000_000], pa.timestamp("ns", "UTC"))),
        ("timestamp", pa.array([7_000], pa.timestamp("ms", "Europe/Berlin"))),
        ("timestamp", pa.array([7])),
        ("headers", pa.array([[("h", "v")]], pa.map_(pa.string(), pa.string()))),
        ("headers", pa.array([[{"key": "h", "value": "v"}]])),
        ("headers", pa.array([{"h": "v"}])),
        ("expiration_ms", pa.array([86_400_000], pa.int32())),
        ("user_id", pa.array([None], pa.string())),
    ],
)
def test_import_takes_columns_as_others_write_them(
    path: Path, tmp_path: Path, column: str, values: Any
) -> None:
    expected: dict[str, Any] = {
        "timestamp": {"timestamp": 7},
        "headers": {"headers": {"h": "v"}},
        "expiration_ms": {"expiration": "86400000"},
    }
    file = tmp_path / "file.parquet"
    pq.write_table(pa.table({"body": pa.array([b"x"]), column: values}), file)
    with pyqstore.open(path) as store:
        store.queue("to")
        run("import", path, "to", file)
        (row,) = seen(path, "to")
    assert row["body"] == "x"
    assert row["properties"] == {"delivery_mode": 2, **expected.get(column, {})}


def test_changed_column_beside_encoded_properties_is_refused(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "file.parquet"
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"x", Properties(delivery_mode=2, headers={"n": 1}))
        run("export", path, "q", file)
        table = pq.read_table(file)
        at = table.column_names.index("priority")
        pq.write_table(table.set_column(at, "priority", pa.array([5], pa.uint8())), file)
        output = run("import", path, "q", file, status=3)
        assert "row 1, column priority: it is not what properties_amqp says" in output
        pq.write_table(pq.read_table(file).drop_columns(["properties_amqp"]), file)
        run("import", path, "q", file)
        assert seen(path, "q")[1]["properties"] == {
            "headers": {"n": "1"},
            "delivery_mode": 2,
            "priority": 5,
        }


def test_import_to_an_exchange_uses_each_rows_routing_key(place: Path, tmp_path: Path) -> None:
    run("declare", place, "x", "--exchange", "topic")
    run("bind", place, "x", "q", "--key", "a.*")
    run("bind", place, "x", "to", "--key", "b.*")
    rows = [
        {"body": key, "routing_key": key, "exchange": "before"} for key in ("a.1", "b.1", "a.2")
    ]
    file = tmp_path / "file.ndjson"
    file.write_text("\n".join(map(json.dumps, rows)))
    run("import", place, "--exchange", "x", file)
    assert bodies(place, "q") == ["a.1", "a.2"]
    assert bodies(place, "to") == ["b.1"]
    assert seen(place, "q")[0]["exchange"] == "x"
    file.write_text(json.dumps({"body": "lost", "routing_key": "c"}))
    told = run("import", place, "--exchange", "x", file, status=3)
    assert "no queue takes" in told
    assert "--skip" not in told  # those of its pack that a queue takes are in
    assert "no exchange 'y'" in run("import", place, "--exchange", "y", file, status=3)
    assert "say QUEUE and FILE" in run("import", place, file, status=2)
    assert "no queue 'none'" in run("import", place, "none", file, status=3)


def test_import_that_a_full_queue_refuses_says_how_many_are_in(place: Path) -> None:
    run("declare", place, "small", "--argument", "x-max-length=700", "--argument",
        "x-overflow=reject-publish")  # fmt: skip
    lines = "".join(f'{{"body": "{number}"}}\n' for number in range(1500))
    output = run("import", place, "small", "-", stdin=lines, status=3)
    assert "at least 500 rows are imported" in output
    assert len(bodies(place, "small")) == 500


def test_import_is_durable_pack_by_pack_while_its_input_goes_on(path: Path) -> None:
    with pyqstore.open(path) as store:
        store.queue("q")
        tool = subprocess.Popen(
            [sys.executable, "-m", "pyqstore", "import", str(path), "q", "-"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert tool.stdin is not None
        tool.stdin.write(b'{"body": "x"}\n' * 1100)
        tool.stdin.flush()
        wait_until(lambda: store.queue_status("q").messages_ready == 1000, 60)
        tool.kill()
        tool.communicate()
        assert store.queue_status("q").messages_ready == 1000


def test_export_to_a_slow_reader_holds_the_owner_back_and_others_go_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    real = OPERATIONS["dump"].run
    body = b"x" * 100_000

    def counted(store: pyqstore.Store, arguments: Report, talk: Talk) -> Report:
        tell = talk.tell

        def telling(report: Report, payload: bytes = b"") -> None:
            tell(report, payload)
            told.append(len(payload))

        monkeypatch.setattr(talk, "tell", telling)
        return real(store, arguments, talk)

    monkeypatch.setitem(OPERATIONS, "dump", Operation(counted))
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        for _ in range(400):
            channel.basic_publish("", "q", body, PERSISTENT)
        tool = subprocess.Popen(
            [sys.executable, "-m", "pyqstore", "export", str(path), "q", "-"],
            stdout=subprocess.PIPE,
        )
        assert tool.stdout is not None
        assert json.loads(tool.stdout.readline())["body"] == body.decode()
        channel.basic_publish("", "q", b"last", PERSISTENT)  # nothing is locked
        assert sum(told) < 200 * len(body)
        assert len(tool.stdout.read().splitlines()) in (399, 400)
        assert tool.wait(60) == 0
        assert sum(told) >= 400 * len(body)

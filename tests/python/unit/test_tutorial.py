"""The Python of the tutorial, the recipes and the guide to operations runs as it stands there, and
no document has Python that no test runs."""

import importlib.util
import re
import threading
from pathlib import Path
from typing import Any

import pytest

import pyqstore

from ..documents import ROOT, blocks, run

SPARK_BLOCKS = 1  # at the end of the tutorial: test_spark_documents.py
# Who runs the blocks of each document.
RUN_BY = {
    "README.md": "unit/test_documents.py",
    "docs/AMQP.md": "unit/test_tutorial.py",
    "docs/COMPAT.md": "unit/test_documents.py",
    "docs/FLIGHT.md": "unit/test_documents.py",
    "docs/GUIDE.md": "unit/test_documents.py",
    "docs/HTTP.md": "unit/test_http_server.py",
    "docs/OPERATIONS.md": "unit/test_tutorial.py",
    "docs/PAGE.md": "page/test_page_requests.py",
    "docs/RECIPES.md": "unit/test_tutorial.py",
    "docs/SEMANTICS.md": "unit/test_tutorial.py",
    "docs/SESSIONS.md": "unit/test_documents.py",
    "docs/SHOVEL.md": "unit/test_documents.py",
    "docs/SPARK.md": "spark/test_spark_documents.py",
    "docs/STREAMS.md": "unit/test_documents.py",
    "docs/TUTORIAL.md": "unit/test_tutorial.py",
}


@pytest.fixture(autouse=True)
def inside(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.mkdir()
    monkeypatch.chdir(path)


def work_until(block: str, stop: threading.Event) -> str:
    """A block whose workers end with ``stop``, without a signal."""
    with_stop = re.sub(r"(\.work\(.*)\)", r"\1, stop=stop)", block)
    assert with_stop != block
    return with_stop


def test_every_document_with_python_is_run_by_a_test() -> None:
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    names = {path.relative_to(ROOT).as_posix() for path in documents}
    assert {name for name in names if blocks(name)} == set(RUN_BY)
    for name, test in RUN_BY.items():
        assert name.removeprefix("docs/") in (ROOT / "tests/python" / test).read_text()


def test_tutorial_runs(capsys: pytest.CaptureFixture[str]) -> None:
    first, taking, working, looking, client, stream = blocks("docs/TUTORIAL.md")[:-SPARK_BLOCKS]
    run(first, {})
    run(taking, {})
    assert capsys.readouterr().out == "4 jobs are on the disk\nmail to ann\n3 are left\n"

    stop = threading.Event()
    names: dict[str, Any] = {"stop": stop}
    thread = threading.Thread(target=stop_when_dead, args=(names, stop))
    thread.start()
    run(work_until(working, stop).replace("as store:", "as store:\n    opened = store"), names)
    thread.join()
    assert sorted(capsys.readouterr().out.splitlines()) == ["mail to bob", "mail to eve"]
    run(looking, {})
    assert capsys.readouterr().out == "mallory ConnectionError: no such mailbox\n"

    with pyqstore.open("jobs.qs") as store:
        listener = store.listen("127.0.0.1:0")
        port = listener.address.rpartition(":")[2]
        run(client.replace("5672", port), {})
    assert capsys.readouterr().out == 'got {"to": "zoe"}\n'
    run(stream, {})
    run(stream, {})
    assert capsys.readouterr().out.splitlines() == [
        "3 new events, up to offset 2",
        "2 of them in eu",
        "3 new events, up to offset 5",
        "4 of them in eu",
    ]


def stop_when_dead(names: dict[str, Any], stop: threading.Event) -> None:
    """Ends the workers when the job that always fails has been set aside."""
    while not stop.wait(0.05):
        store = names.get("opened")
        if store and "jobs.dead" in store.queues() and len(store.queue("jobs.dead")):
            stop.set()


def test_recipes_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pyqstore.open("jobs.qs") as store:
        names: dict[str, Any] = {"store": store}
        for block in blocks("docs/RECIPES.md"):
            if "tracing" not in block or importlib.util.find_spec("opentelemetry"):
                run(block, names)
        lines = capsys.readouterr().out.splitlines()
        assert lines[:6] == ["1", "b'outage'", "full: 1", "4096 rows", "4096 rows", "1808 rows"]
        assert lines[6] == "b'one-time code'"
        assert "'remind ann', 'delayed': True" in lines[7]
        assert store.queue_status("results").messages_ready == 1
        parts = [len(store.queue(f"part {number}")) for number in range(4)]
        assert sorted(parts) == [0, 0, 0, 2]


def test_guide_to_operations_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks("docs/OPERATIONS.md")
    run(block, {})
    assert capsys.readouterr().out == "healthy {'jobs': 1}\n"


def test_guide_to_amqp_runs(certificates: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listening, vhosts, tls = blocks("docs/AMQP.md")
    run(listening.replace("5672", "0"), {})
    assert capsys.readouterr().out.startswith("clients connect to 127.0.0.1:")
    run(vhosts.replace("5672", "0"), {"pyqstore": pyqstore})
    with pyqstore.open("jobs.qs") as store:
        here = tls.replace("server.", f"{certificates}/server.")
        names: dict[str, Any] = {"store": store}
        run(here.replace("0.0.0.0:5671", "127.0.0.1:0"), names)
        assert names["listener"].address.startswith("127.0.0.1:")


def test_example_of_a_selector_runs() -> None:
    (selecting,) = blocks("docs/SEMANTICS.md")
    with pyqstore.open(":memory:") as store, store.channel() as channel:
        run(selecting, {"pyqstore": pyqstore, "channel": channel})
        assert store.queue_status("cheap").messages_ready == 1


def test_reference_has_every_public_name() -> None:
    import pyqstore.aio
    import pyqstore.archives
    import pyqstore.backups
    import pyqstore.compat.kombu
    import pyqstore.flight
    import pyqstore.metering
    import pyqstore.session
    import pyqstore.tracing
    import spark_udfs

    rooms = [pyqstore.aio, pyqstore.flight, pyqstore.session, pyqstore.backups, pyqstore.tracing]
    rooms += [pyqstore.archives, pyqstore.metering, pyqstore.compat, pyqstore.compat.kombu]
    pages = "".join(path.read_text() for path in (ROOT / "docs/reference").glob("*.md"))
    listed = set(re.findall(r"^::: (\S+)$", pages, re.M)) - {"mkdocs-click"}  # the command line
    public = {
        f"{module.__name__}.{name}"
        for module in (pyqstore, *rooms, spark_udfs)
        for name in module.__all__
    }
    errors = {f"pyqstore.{name}" for name in pyqstore.errors.__all__}  # on one page, as a module
    # A module, and another name of pyqstore.flight.connect.
    assert public - errors - listed == {"pyqstore.aio.session", "pyqstore.connect"}
    assert listed - public == {"pyqstore.errors", "pyqstore.codec"}

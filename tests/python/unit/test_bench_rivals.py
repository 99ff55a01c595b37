"""Rivals: each gives back what it was given, what is missing is told, syncs are really counted."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from benchmarks.laboratory.rivals import jars, java_client, rabbitmq, redis_streams, syncs, work
from benchmarks.laboratory.rivals.contract import Rival, packages_missing
from benchmarks.laboratory.rivals.known import known
from benchmarks.laboratory.rivals.server import Server, free_port, listens, program_missing
from benchmarks.laboratory.rivals.sqlite_table import Sqlite
from pyqstore.bench.runs import Case, Options, Result, Sample

HERE_ALWAYS = ("pyqstore", "SQLite")
# Of classic queues that are not empty; where there are none, another version does the work.
CLASSIC_FILES = {"RabbitMQ classic v1": {"journal.jif"}, "RabbitMQ classic v2": {"0.qi", "0.qs"}}
RABBITMQ_FILES = set().union(*CLASSIC_FILES.values())
QUEUES = ("classic v1", "classic v2", "quorum")
LISTENS_WITH_A_CHILD = """
import socket, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True)
open("child", "w").write(str(child.pid))
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    server.accept()
"""


def absent(why: str) -> NoReturn:
    """Skip what is not here, but not where everything has to be."""
    (pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip)(why)


@contextmanager
def started(rival: Rival, directory: Path) -> Iterator[Rival]:
    try:
        rival.start(directory)
        yield rival
    finally:
        rival.stop()


@pytest.mark.slow
@pytest.mark.parametrize("name", known())
def test_a_rival_gives_back_what_it_was_given(name: str, tmp_path: Path) -> None:
    rival = known()[name]
    if (why := rival.missing()) is not None:
        assert name not in HERE_ALWAYS
        absent(why)
    bodies = [b"%d" % number for number in range(7)] + [b"", bytes(range(256)), b"x" * 100_000]
    with started(rival, tmp_path):
        assert rival.version()
        for _ in range(2):
            assert len(rival.publish_and_wait(b"alone", 3)) == 3
            rival.publish_pipelined(bodies)
            rival.publish_batches(bodies, 2)
            files = {path.name for path in tmp_path.rglob("*")}
            assert files & RABBITMQ_FILES == CLASSIC_FILES.get(name, set())
            assert rival.consume(3 + 3 * len(bodies)) == [b"alone"] * 3 + bodies * 3


def test_a_classic_version_that_the_server_lacks_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module, function in ((rabbitmq, "program_missing"), (java_client, "missing")):
        monkeypatch.setattr(module, function, lambda *_: None)

    def told(server: tuple[int, ...] | None) -> list[str | None]:
        monkeypatch.setattr(rabbitmq, "server_version", lambda: server)
        return [known()[f"RabbitMQ {queue}"].missing() for queue in QUEUES]

    assert told((3, 9)) == [None, "RabbitMQ 3.9 has no classic queues of version 2", None]
    assert told((3, 10)) == told((4, 2)) == told(None) == [None, None, None]
    assert told((4, 3)) == ["RabbitMQ 4.3 has no classic queues of version 1", None, None]


def test_a_java_client_without_its_server_says_so(tmp_path: Path) -> None:
    rival = known()["RabbitMQ quorum"]
    assert isinstance(rival, rabbitmq.RabbitMq)
    if (why := rival.missing()) is not None:
        absent(why)
    with started(rival, tmp_path):
        rival.stop_server()
        with pytest.raises(RuntimeError, match=r"Java client Client failed: .*clos"):
            rival.publish_pipelined([b"x"] * 10)
        with pytest.raises(RuntimeError, match=r"(?s)client Client ended; it said:.*Exception"):
            rival.consume(1)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pyqstore" / "jars"


def maven(path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program in Maven's place, that puts one jar where it is told to and then does this."""
    path.write_text(
        f"#!/bin/sh\nfor last; do :; done\nmkdir ${{last#*=}}\n>${{last#*=}}/a.jar\n{script}\n"
    )
    path.chmod(0o755)
    monkeypatch.setattr(jars, "MAVEN", str(path))


def test_jars_that_maven_cannot_get_are_told_and_none_is_kept(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maven(tmp_path / "mvn", monkeypatch, "echo Unknown host; exit 1")
    with pytest.raises(RuntimeError, match=r"(?s)did not get the jars.*network.*\nUnknown host"):
        jars.fetch()
    assert not any(cache.iterdir())
    why = jars.missing()
    assert why is not None
    assert why.endswith(f"{jars.folder()}: pyqstore bench rivals --fetch")


def test_jars_are_fetched_once(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maven(tmp_path / "mvn", monkeypatch, "exit 0")
    assert jars.fetch() == jars.folder()
    assert [path.name for path in cache.glob("*/*")] == ["a.jar"]
    assert jars.missing() is None
    maven(tmp_path / "mvn", monkeypatch, "exit 1")
    assert jars.fetch() == jars.folder()
    other = tmp_path / "pom.xml"
    other.write_text("<project/>")
    assert jars.missing(other) is not None


def test_a_missing_maven_ends_fetching_with_what_to_install(cache: Path) -> None:
    done = bench("--fetch", PATH="/nowhere", XDG_CACHE_HOME=str(cache))
    out, err = done.communicate(timeout=60)
    assert (done.returncode, out) == (3, "")
    assert err == "pyqstore: there is no mvn: apt-get install maven\n"


def test_a_jre_alone_is_no_java_to_run_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(home: str, *programs: str) -> None:
        for program in programs:
            (tmp_path / home / "bin" / program).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / home / "bin" / program).touch(0o755)

    install("jre", "java")
    install("jdk", "java", "javac")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jre"))
    monkeypatch.setenv("PATH", str(tmp_path / "jre/bin"))
    assert java_client.missing() == "there is no javac: apt-get install openjdk-17-jdk-headless"
    monkeypatch.setenv("PATH", str(tmp_path / "jdk/bin"))
    assert java_client.find_java() == str(tmp_path / "jdk/bin/java")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert java_client.find_java() == str(tmp_path / "jdk/bin/java")


class Ticks(Sqlite):
    """Its clock knows messages alone: each takes a second, but the first thousand take two."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.published = 0

    def clock(self) -> float:
        return self.seconds

    def publish_batches(self, batch: Sequence[bytes], batches: int) -> None:
        for _ in range(batches * len(batch)):
            self.seconds += 1 if self.published >= 1000 else 2
            self.published += 1
        super().publish_batches(batch, batches)

    def publish_pipelined(self, bodies: Sequence[bytes]) -> None:
        self.publish_batches(bodies, 1)

    def consume(self, count: int) -> list[bytes]:
        self.seconds += count
        return super().consume(count)


def test_rounds_are_timed_by_the_rivals_clock_and_grow_until_they_fill_the_time(
    tmp_path: Path,
) -> None:
    with started(Ticks(), tmp_path) as rival:
        load = work.Load(rival, [b"a"] * 100, waits=1, seconds=2000)
        figures = load.run(tmp_path).figures
    assert figures == {"pipelined_per_s": 1.0, "batches_per_s": 1.0, "consumed_per_s": 1.0}
    assert load.counts == work.Counts(1, pipelined=2000, batches=20)


@pytest.mark.parametrize("name", HERE_ALWAYS)
def test_a_round_measures_all_four_works(name: str, tmp_path: Path) -> None:
    bodies = [b"a" * 50, b"b" * 50]
    with started(known()[name], tmp_path) as rival:
        load = work.Load(rival, bodies, waits=5, seconds=0.001)
        load.run(tmp_path)
        sample = load.run(tmp_path)
    assert len(sample.latencies_us) == 5
    assert set(sample.figures) == {"pipelined_per_s", "batches_per_s", "consumed_per_s"}
    assert all(value > 0 for value in sample.metrics().values())


def test_a_rival_that_loses_a_message_is_not_measured(tmp_path: Path) -> None:
    class Loses(Sqlite):
        def publish_pipelined(self, bodies: Sequence[bytes]) -> None:
            super().publish_pipelined([*bodies[:-1], b"another"])

    with started(Loses(), tmp_path) as rival, pytest.raises(RuntimeError, match="other messages"):
        work.Load(rival, [b"a"], waits=1, seconds=0.001).run(tmp_path)


def test_what_is_missing_is_told_with_how_to_get_it() -> None:
    assert program_missing("no-such-server", "its-package") == (
        "there is no no-such-server: apt-get install its-package"
    )
    assert program_missing("sh", "dash") is None
    assert packages_missing("json", "no_such_package") == (
        "Python has no no_such_package: pip install 'pyqstore[rivals]'"
    )
    assert packages_missing("json") is None


def test_a_missing_rival_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_streams, "PROGRAM", "no-such-redis")
    rivals, left_out = work.asked(Options(chosen={"only": ("Redis", "SQLite")}))
    assert [rival.name for rival in rivals] == ["pyqstore", "SQLite"]
    assert left_out == {"Redis": "there is no no-such-redis: apt-get install redis-server"}
    told = work.Work(rivals, ["1", "2"], {}, left_out, "no strace", [100]).notes([])
    assert told[-1] == (
        "Redis is left out: there is no no-such-redis: apt-get install redis-server."
    )
    assert "Syncs were not counted: no strace." in told


LOG = """\
10 openat(AT_FDCWD</d>, "/d/db", O_RDWR|O_CREAT, 0644) = 3</d/db>
10 openat(AT_FDCWD</d>, "/d/db", O_RDWR|O_DSYNC) = 4</d/db>
10 fsync(3</d/db>)                 = 0
10 openat(AT_FDCWD</d>, "/d/counting-begins", O_WRONLY|O_CREAT, 0666) = 5</d/counting-begins>
10 pwrite64(3</d/db>, ""..., 48, 16) = 48
12 fdatasync(3</d/db>)             = 0
10 pwrite64(4</d/db>, ""..., 48, 16) = 48
11 pwritev2(3</d/db>, [{iov_base=""..., iov_len=5}], 1, 0, RWF_DSYNC) = 5
11 msync(0x7f0000000000, 4096, MS_ASYNC) = 0
11 msync(0x7f0000000000, 4096, MS_SYNC) = 0
10 openat(AT_FDCWD</d/O_SYNC>, "/d/O_SYNC/log", O_RDWR) = 4</d/O_SYNC/log>
10 write(4</d/O_SYNC/log>, ""..., 48) = 48
10 openat(AT_FDCWD</d>, "/d/counting-ends", O_WRONLY|O_CREAT, 0666) = 5</d/counting-ends>
10 fsync(3</d/db>)                 = 0
+++ exited with 0 +++
"""


def test_syncs_are_counted_between_the_two_files_in_each_form() -> None:
    assert syncs.counted(LOG) == 4
    with pytest.raises(ValueError, match="before the last answer"):
        syncs.counted(LOG[: LOG.index("counting-ends")])


def test_what_syncs_and_what_does_not_differ_in_the_count(tmp_path: Path) -> None:
    if (why := syncs.uncountable()) is not None:
        (absent if "there is no strace" in why else pytest.skip)(why)
    found = syncs.syncs_per_answer(HERE_ALWAYS, tmp_path)
    assert all(1 <= found[name] < 1.5 for name in HERE_ALWAYS)


@pytest.mark.parametrize("path", ["", "/nowhere"])
def test_without_strace_it_is_said(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", path)
    assert syncs.uncountable() == "there is no strace (apt-get install strace)"


def test_a_rival_that_does_not_sync_says_so_in_its_name_and_notes() -> None:
    rival = Sqlite()
    told = work.Work([rival], ["1"], {rival.name: 0.01}, {}, None, [100])
    assert told.title(rival) == "SQLite (unsynced)"
    assert told.notes([])[-1].endswith(
        "0.01 syncs for each answer: it answers before the message is on the disk."
    )


def sampled(latency: float, rate: float) -> Sample:
    names = ("pipelined_per_s", "batches_per_s", "consumed_per_s")
    return Sample(1.0, latencies_us=[latency] * 3, figures=dict.fromkeys(names, rate))


def test_multiples_are_of_pyqstore_in_the_same_round() -> None:
    def result(name: str, *rounds: tuple[float, float]) -> Result:
        return Result(Case(name, missing_run, group="g"), [sampled(*each) for each in rounds])

    results = [
        result(work.RAW, (10, 1000), (20, 1000)),
        result("pyqstore", (20, 100), (40, 200)),
        result("Fast (unsynced)", (10, 400), (80, 200)),
    ]
    (held,) = work.multiples(results)
    assert (held.case.name, held.case.group) == ("Fast (unsynced)", "g, over pyqstore's")
    assert held.metrics["p50_to_pyqstore"] == (1.25, 0.5, 2.0)
    assert held.metrics["batches_to_pyqstore"] == (2.5, 1.0, 4.0)
    assert held.metrics["batches_to_floor"] == pytest.approx((0.3, 0.2, 0.4))


def missing_run(_directory: Path) -> Sample:
    raise AssertionError("nothing is run here")


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def test_a_server_ends_with_its_children_in_sessions_of_their_own(tmp_path: Path) -> None:
    server, port = Server(tmp_path), free_port()
    server.run([sys.executable, "-c", LISTENS_WITH_A_CHILD, str(port)], port)
    child = int((tmp_path / "child").read_text())
    assert listens(port)
    assert psutil.pid_exists(child)
    server.stop()
    assert not listens(port)
    assert eventually(lambda: not running(child))


def running(process: int) -> bool:
    """Whether it is there, and no corpse that nobody asks for."""
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_server_that_ends_at_once_is_quoted(tmp_path: Path) -> None:
    server = Server(tmp_path)
    with pytest.raises(RuntimeError, match=r"(?s)ended at once.*no such luck"):
        server.run([sys.executable, "-c", "raise SystemExit('no such luck')"], free_port())
    server.stop()


def bench(*arguments: object, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "pyqstore", "bench", "rivals", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200", **environment},
        cwd=Path(__file__).parents[3],  # where the laboratory is
    )


@pytest.mark.slow
def test_a_quick_run_prints_a_table_and_writes_all_files(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("r.json", "r.png", "r.html")]
    done = bench(
        *("--only", "sqlite", "--quick", "--rounds", 1, "--scale", 0.2, "--directory", tmp_path),
        *("--json", files[0], "--plot", files[1], "--html", files[2]),
    )
    out, err = done.communicate(timeout=120)
    assert (done.returncode, err) == (0, "")
    assert "SQLite" in out
    assert "over pyqstore's" in out
    results = json.loads(files[0].read_text())["results"]
    assert [each["case"] for each in results] == [work.RAW, "pyqstore", "SQLite", "SQLite"]
    assert results[3]["metrics"]["p50_to_pyqstore"][0] > 0
    assert files[1].read_bytes().startswith(b"\x89PNG")
    assert sorted(tmp_path.iterdir()) == sorted(files)


def test_an_unknown_rival_is_refused(tmp_path: Path) -> None:
    done = bench("--only", "nobody", "--directory", tmp_path)
    _, err = done.communicate(timeout=60)
    assert done.returncode == 2
    assert "'nobody' is not one of" in err


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    done = bench("--directory", tmp_path, "--only", "SQLite", "--scale", 50)
    assert eventually(lambda: any(tmp_path.glob("*/rival-1/queue.db")))
    family = psutil.Process(done.pid).children(recursive=True)
    done.send_signal(signal.SIGINT)
    done.communicate(timeout=60)
    assert done.returncode != 0
    assert not any(tmp_path.iterdir())
    assert not any(running(member.pid) for member in family)

"""What surrounds a store: clocks, file systems, who may write in its directories."""

import os
import time
import warnings
from pathlib import Path

import pytest

import pyqstore
from pyqstore import _core, codec, opening

from ..support import PERSISTENT, get, publish, run_python, wait_until

HOUR_MS = "3600000"


def publish_for_an_hour(channel: pyqstore.Channel) -> None:
    channel.queue_declare("q", durable=True)
    publish(channel, "q", b"kept", expiration=HOUR_MS)


def wind_manifest_back(path: Path, seconds: int) -> None:
    """As if the store had been open so long ago: the clock then jumps ahead at the next open."""
    manifest = bytearray((path / "MANIFEST").read_bytes())
    clock_us = int.from_bytes(manifest[96:104], "little")
    assert abs(clock_us / 1e6 - time.time()) < 3600
    manifest[96:104] = (clock_us - seconds * 10**6).to_bytes(8, "little")
    manifest[-4:] = codec.crc32c(bytes(manifest[:-4])).to_bytes(4, "little")
    (path / "MANIFEST").write_bytes(manifest)


def test_messages_outlive_a_clock_that_jumped_until_it_is_accepted(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        publish_for_an_hour(channel)
        assert abs(store.recovery_report.clock_ahead_s) < 60
    wind_manifest_back(path, 10 * 365 * 86400)
    # What was published is ten years younger than the store's clock at the next open says, and
    # the machine's is ten years ahead of that.
    with pytest.warns(pyqstore.ClockJump, match="ahead of the store's"):
        store = pyqstore.open(path)
    with store, store.channel() as channel:
        assert abs(store.recovery_report.clock_ahead_s - 10 * 365 * 86400) < 3600
        assert store.queue_status("q")["messages_ready"] == 1
        publish(channel, "q", b"gone", expiration=HOUR_MS)
        store.accept_clock()
        assert abs(store.stats()["clock_ahead_s"]) < 60
        wait_until(lambda: store.queue_status("q")["messages_ready"] == 1)
        message = get(channel, "q", auto_ack=True)
        assert message.body == b"kept"
    with warnings.catch_warnings():
        warnings.simplefilter("error", pyqstore.ClockJump)
        pyqstore.open(path).close()


@pytest.mark.clock
def test_faketime_ten_years_ahead_drops_nothing(path: Path) -> None:
    """The same with the machine's own clock, as far as a library can turn it."""
    with pyqstore.open(path) as store, store.channel() as channel:
        publish_for_an_hour(channel)
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        missing = pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip
        missing("libfaketime is not installed")
    code = (
        "import os, sys, pyqstore\n"
        "store = pyqstore.open(sys.argv[1])\n"
        "print(store.recovery_report.clock_ahead_s > 9 * 365 * 86400,"
        " store.queue_status('q')['messages_ready'])\n"
        "store.close()"
    )
    done = run_python(
        "import os, sys; os.execve(sys.executable, [sys.executable, '-W', 'ignore', '-c',"
        " sys.argv[1], sys.argv[2]], os.environ | {'LD_PRELOAD': sys.argv[3],"
        " 'FAKETIME': '+3650d', 'DONT_FAKE_MONOTONIC': '1'})",
        code,
        path,
        library,
    )
    assert done.stdout == "True 1\n", done.stderr


@pytest.mark.parametrize("name", ["journal", "messages", "index", "checkpoint"])
def test_directory_of_the_store_that_others_can_write_is_refused(path: Path, name: str) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"there", PERSISTENT)
    (path / name).chmod(0o770)
    with pytest.raises(ValueError, match=rf"'{name}' can be written by other users.*chmod go-w"):
        pyqstore.open(path)
    (path / name).chmod(0o700)
    with pyqstore.open(path) as store:
        assert store.queue_status("q")["messages_ready"] == 1


def test_stats_name_the_file_system(store: pyqstore.Store) -> None:
    stats = store.stats()
    assert stats["filesystem"] != ""
    assert stats["filesystem_kind"] in {"local", "volatile", "network", "unknown"}
    assert stats["commit_stalls"] == 0
    assert stats["commit_running_ms"] < 30_000


@pytest.mark.parametrize(
    ("kind", "warned"), [("local", 0), ("volatile", 0), ("network", 1), ("unknown", 1)]
)
def test_file_system_without_the_semantics_is_warned_of(
    path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, warned: int
) -> None:
    monkeypatch.setattr(opening, "filesystem_of", lambda told: ("nfs", kind))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pyqstore.open(path).close()
    told = [warning for warning in caught if warning.category is pyqstore.UnsafeFilesystem]
    assert len(told) == warned
    assert all(warning.filename == __file__ for warning in told)
    assert all("nfs" in str(warning.message) for warning in told)


def test_kinds_of_file_systems_are_those_of_the_engine(store: pyqstore.Store) -> None:
    told = _core.Store._stats(store)["file_system"]
    assert opening.filesystem_of(told)[0] == store.stats()["filesystem"]

"""The socket by which tools reach a store that is open: real clients, rubbish, forks and deaths.
Owners are this process, or one that the test starts and kills."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import pyqstore
from pyqstore.control import looking
from pyqstore.control.operations import OPERATIONS
from pyqstore.control.reaching import reach
from pyqstore.control.wire import HEAD, is_same_user, names_of

from ..support import PERSISTENT, run_python, wait_until

OWNER = """
import sys, time, pyqstore
store = pyqstore.open(sys.argv[1])
store.queue("q").put(b"kept")
print("open", flush=True)
time.sleep(600)
"""


OPENS_AND_CLOSES = """
import os, sys, pyqstore
stores = []
while what := os.read(0, 1):
    while stores:
        stores.pop().close()
    if what != b"-":
        stores = [pyqstore.open(path, control=what == b"c") for path in sys.argv[1:]]
    os.write(1, what)
"""


def owner_of(path: Path) -> "subprocess.Popen[str]":
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "open\n"
    return owner


def descriptors(process: int) -> set[str]:
    """What it has open, as far as it is not the listing itself."""
    found = set()
    for number in os.listdir(f"/proc/{process}/fd"):
        try:
            found.add(f"{number} {os.readlink(f'/proc/{process}/fd/{number}')}")
        except FileNotFoundError:
            continue
    return found


def threads_of(process: int) -> set[str]:
    """Those of engines among them."""
    return set(os.listdir(f"/proc/{process}/task"))


def is_called() -> bool:
    """Whether a tool's call is being answered."""
    return any("call" in each.name for each in threading.enumerate())


def connected(path: Path) -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    end.settimeout(20)
    end.connect(names_of(path)[0])
    return end


def test_socket_leaves_nothing_in_the_directory(path: Path) -> None:
    with pyqstore.open(path) as store:
        assert store.options["control"] is True
        assert not [each for each in path.rglob("*") if each.is_socket()]
        shutil.copytree(path, path.with_name("copy"))
    with pytest.raises(ConnectionRefusedError):
        connected(path)


def test_another_users_tool_is_turned_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pyqstore.open(path), connected(path) as end:
        assert is_same_user(end)
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with connected_as_before(end) as other:
            assert not is_same_user(other)
            assert other.recv(1) == b""


def connected_as_before(end: socket.socket) -> socket.socket:
    """Once more where ``end`` is."""
    other = socket.socket(socket.AF_UNIX)
    other.settimeout(20)
    other.connect(end.getpeername())
    return other


def test_name_that_another_process_took_is_passed_over(path: Path) -> None:
    pyqstore.open(path).close()
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(names_of(path)[0])  # and does not listen
        with pyqstore.open(path) as store:
            assert store.options["control"] is True
            assert "queues" in reach(path, "queues")


def test_store_without_control_has_no_socket_and_tools_are_told(path: Path) -> None:
    with pyqstore.open(path, control=False) as store:
        assert store.options["control"] is False
        with pytest.raises(pyqstore.StoreLocked, match="does not listen for tools") as told:
            reach(path, "stats")
        assert told.value.pid == os.getpid()
    with pyqstore.open(":memory:") as store:
        assert store.options["control"] is False


def test_opening_and_closing_leaves_no_thread_and_no_descriptor(path: Path) -> None:
    """In a process of its own, where no thread of another test begins or ends meanwhile."""
    command = [sys.executable, "-c", OPENS_AND_CLOSES, str(path), f"{path}2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:

        def does(one: bytes) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(one)
            process.stdin.flush()
            assert process.stdout.read(1) == one

        def more_threads() -> int:
            return len(threads_of(process.pid) - threads)

        does(b"-")
        before, threads = descriptors(process.pid), threads_of(process.pid)
        does(b"o")
        engines = more_threads()
        for _ in range(3):
            does(b"-")
            does(b"c")
            assert "queues" in reach(path, "queues")
            wait_until(lambda: more_threads() == engines + 1)  # one for both
        does(b"-")
        assert descriptors(process.pid) == before
        wait_until(lambda: more_threads() == 0)  # a thread that was joined may still be listed


def test_dead_owner_leaves_nothing_in_the_way(path: Path) -> None:
    owner = owner_of(path)
    assert reach(path, "purge", {"queue": "q"})["messages"] == 1
    owner.kill()
    owner.communicate()
    assert "q" in reach(path, "queues")["queues"]  # opened here: nothing listens
    with pyqstore.open(path) as store:
        assert store.options["control"] is True
        assert reach(path, "stats")["options"]["control"] is True


def test_store_at_a_long_path_is_reached(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 120)
    with pyqstore.open(path) as store:
        assert store.options["control"] is True
        store.queue("here")
        assert "here" in reach(path, "queues")["queues"]


def test_store_is_reached_after_its_process_went_elsewhere(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    with pyqstore.open(path.name):
        monkeypatch.chdir("/")
        assert "queues" in reach(path, "queues")


@pytest.mark.parametrize(
    "rubbish",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        HEAD.pack(b"QSC1", 2**32 - 1, 0),
        HEAD.pack(b"QSC1", 2, 5) + b"{}hello",
        HEAD.pack(b"QSC1", 4, 0) + b"nope",
        HEAD.pack(b"QSC1", 2, 0) + b"[]",
        HEAD.pack(b"QSC1", 60_000, 0) + b"[" * 60_000,
        os.urandom(100),
    ],
    ids=["http", "huge", "payload", "no JSON", "no object", "deep", "random"],
)
def test_rubbish_is_closed_and_costs_no_thread(path: Path, rubbish: bytes) -> None:
    with pyqstore.open(path):
        with connected(path) as end:
            end.sendall(rubbish)
            with suppress(ConnectionResetError):  # it had not read all of it
                assert end.recv(1) == b""
        assert not is_called()
        assert "queues" in reach(path, "queues")


def test_silent_clients_cost_no_thread_and_do_not_hold_up_a_close(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_SAY_S", "_JOIN_S"):
        monkeypatch.setattr(f"pyqstore.control.hub.{name}", 1000.0)
    store = pyqstore.open(path)
    assert "queues" in reach(path, "queues")
    wait_until(lambda: not is_called())
    silent = [connected(path) for _ in range(40)]
    silent[0].sendall(b"QSC1")  # and no more
    wait_until(lambda: any(_is_closed(end) for end in silent))  # more than may wait
    assert not is_called()
    began = time.monotonic()
    store.close()
    assert time.monotonic() - began < 100
    for end in silent:
        end.close()


def _is_closed(end: socket.socket) -> bool:
    end.setblocking(False)
    try:
        return end.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False


def test_unknown_call_is_told(path: Path) -> None:
    with pyqstore.open(path), connected(path) as end:
        text = b'{"call": "explode", "arguments": {}}'
        end.sendall(HEAD.pack(b"QSC1", len(text), 0) + text)
        data = b""
        while chunk := end.recv(1 << 16):
            data += chunk
        assert b"does not know 'explode'" in data


def test_errors_of_the_owner_come_as_they_are(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        with pytest.raises(pyqstore.NotFound, match="nothing") as told:
            reach(path, "purge", {"queue": "nothing"})
        assert told.value.reply_code == 404
        with pytest.raises(pyqstore.PreconditionFailed):
            reach(path, "declare", {"kind": "queue", "name": "q", "durable": False})
        with pytest.raises(ValueError, match="is no stream"):
            reach(path, "dump", {"queue": "q", "start": "3"})


def test_waiting_call_ends_when_the_store_is_closed(path: Path) -> None:
    raised: list[Exception] = []
    has_begun = threading.Event()

    def asked(_report: dict[str, object]) -> tuple[dict[str, object], bytes]:
        has_begun.set()
        return {}, b""

    def wait() -> None:
        try:
            reach(path, "consume", {"queue": "q", "timeout": None}, asked=asked)
        except Exception as error:
            raised.append(error)

    store = pyqstore.open(path)
    store.queue("q").put(b"x")
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert has_begun.wait(20)  # a call that has not begun is made once more, without the owner
    store.close()
    thread.join(20)
    assert [type(error) for error in raised] == [pyqstore.StoreClosed]


def test_snapshot_is_not_made_when_its_tool_has_gone(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = pyqstore.Store.snapshot
    tools: list[subprocess.Popen[bytes]] = []

    def made(store: pyqstore.Store, to: str) -> object:
        tools[0].send_signal(signal.SIGINT)
        tools[0].communicate()
        return snapshot(store, to)

    monkeypatch.setattr(pyqstore.Store, "snapshot", made)
    command = [sys.executable, "-m", "pyqstore", "snapshot", str(path), str(tmp_path / "copy")]
    with pyqstore.open(path):
        tools.append(subprocess.Popen(command, stderr=subprocess.PIPE))
        wait_until(lambda: tools[0].returncode is not None)
        wait_until(lambda: not is_called())
    assert tools[0].returncode == 130
    assert os.listdir(tmp_path) == [path.name]


def test_call_ends_when_its_tool_is_killed(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"1", PERSISTENT)
        tool = subprocess.Popen(
            [sys.executable, "-m", "pyqstore", "consume", str(path), "q", "--follow"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert tool.stdout is not None
        assert tool.stdout.readline() == "1\n"
        assert is_called()
        tool.send_signal(signal.SIGKILL)
        tool.communicate()
        wait_until(lambda: not is_called())
        assert store.queue_status("q").consumers == 0


def test_child_of_fork_neither_answers_nor_ends_the_socket(path: Path) -> None:
    code = """
import os, sys, pyqstore
store = pyqstore.open(sys.argv[1])
child = os.fork()
if child == 0:
    store.close()
    links = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
             if os.path.exists(f"/proc/self/fd/{n}") or os.path.islink(f"/proc/self/fd/{n}")]
    other = pyqstore.open(sys.argv[1] + "2")
    print(other.options["control"], sum("socket:" in link for link in links), flush=True)
    other.close()
    os._exit(0)
os.waitpid(child, 0)
from pyqstore.control.reaching import reach
print("queues" in reach(sys.argv[1], "queues"), flush=True)
store.close()
"""
    done = run_python(code, path, check=True, stdin=subprocess.DEVNULL)
    assert done.stdout == "True 0\nTrue\n"


def test_store_that_is_being_opened_is_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyqstore.control.reaching._FREE_S", 60.0)
    with pyqstore.open(path) as store:
        store.queue("q")
    other = pyqstore.open(path, control=False)
    closing = threading.Timer(0.3, other.close)
    closing.start()
    assert "q" in reach(path, "queues")["queues"]
    closing.join()


def test_looking_passes_over_queues_and_files_that_go_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pyqstore.open(path) as store:
        store.queue("stays")
        names = store.queues
        monkeypatch.setattr(store, "queues", lambda: [*names(), "gone"])
        real = os.scandir

        class Listed:
            """A folder's entries, of which the first is removed when it is looked at."""

            def __init__(self, folder: Path) -> None:
                (folder / "0").write_bytes(b"x")
                self._entries = real(folder)

            def __enter__(self) -> list["os.DirEntry[str]"]:
                entries = sorted(self._entries, key=lambda entry: entry.name)
                os.unlink(entries[0].path)
                return entries

            def __exit__(self, *_: object) -> None:
                self._entries.close()

        (path / "transient").mkdir(exist_ok=True)
        before = looking._count(path / "transient")
        monkeypatch.setattr(os, "scandir", Listed)
        assert looking._count(path / "transient") == before
        monkeypatch.setattr(os, "scandir", real)
        assert looking._count(path / "nowhere") == (0, 0)
        for name in ("inspect", "queues", "overview"):
            assert list(OPERATIONS[name].run(store, {}, None)["queues"]) == ["stays"]  # type: ignore[arg-type]

"""Waits without an end, in all faces, while the main thread ends with an exception: ``endless``."""

import subprocess
import sys
from pathlib import Path

import pytest

import pyqstore

from .endless import HANGS_S, HOW

ROOT = Path(__file__).parents[3]
PROGRAM = """
import runpy, sys
sys.path.append(sys.argv.pop(1))
runpy.run_module("tests.python.unit.endless", run_name="__main__", alter_sys=True)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * HANGS_S)


@pytest.mark.parametrize("how", [each.__name__ for each in HOW])
def test_a_process_ends_when_main_raises_while_waits_without_an_end_are_in_flight(
    path: Path, how: str
) -> None:
    ended = run(str(path), how, "all")
    assert "Timeout (" not in ended.stderr, ended.stderr[-4000:]
    assert ended.returncode == 1
    assert "RuntimeError: of main" in ended.stderr
    with pyqstore.open(path) as store:
        assert store.queue("confirmed").get(timeout=0).body == b"kept"


def test_threads_go_on_when_main_returns(path: Path) -> None:
    """As Python has it: a program may leave its work to threads that are no daemons."""
    program = f"""
import threading, time, pyqstore
store = pyqstore.open({str(path)!r})
queue = store.queue("q")
def work():
    message = queue.get()
    message.ack()
    print(message.body)
def put():
    threading.main_thread().join()
    queue.put(b"after main")
for each in (work, put):
    threading.Thread(target=each).start()
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=2 * HANGS_S)
    assert ended.stdout == "b'after main'\n"


def test_what_a_thread_has_under_way_is_finished_after_main_raised(path: Path) -> None:
    """Only a wait without an end is ended: what comes by itself is waited for."""
    program = f"""
import threading, time, pyqstore, pyqstore.waiting
store = pyqstore.open({str(path)!r})
queue = store.queue("q")
queue.put(b"one")
def work():
    message = queue.get()
    while not pyqstore.waiting._Main.has_raised:
        time.sleep(0.001)
    queue.put(b"two")
    queue.put_many([b"three"])
    message.ack()
    with store.channel() as channel:
        channel.confirm_select()
        channel.basic_publish("", "q", b"four", pyqstore.Properties(delivery_mode=2))
        assert channel.wait_for_confirms()
    for message in queue:
        print(message.body)
threading.Thread(target=work).start()
raise RuntimeError("of main")
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=2 * HANGS_S
    )
    assert ended.stdout.split() == ["b'two'", "b'three'", "b'four'"]
    assert "StoreClosed: the main thread has ended" in ended.stderr
    with pyqstore.open(path) as store:
        assert len(store.queue("q")) == 0


def test_an_exception_that_was_handled_ends_no_wait(path: Path) -> None:
    """A tool that shows tracebacks keeps the last one in ``sys``."""
    program = f"""
import sys, threading, pyqstore
store = pyqstore.open({str(path)!r})
queue = store.queue("q")
def work():
    print(queue.get().body)
def put():
    threading.main_thread().join()
    queue.put(b"after main")
def show():
    try:
        1 / 0
    except ZeroDivisionError as error:
        sys.last_type, sys.last_value, sys.last_traceback = sys.exc_info()
for each in (work, put):
    threading.Thread(target=each).start()
show()
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=2 * HANGS_S)
    assert ended.stdout == "b'after main'\n"


HOLDER = """
import pyqstore, sys
client = pyqstore.connect(sys.argv[1])
client.get_batch("q")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_server_of_flight_ends_with_its_process_though_a_client_holds_deliveries(
    path: Path,
) -> None:
    program = f"""
import pyqstore, pyqstore.flight, subprocess, sys
store = pyqstore.open({str(path)!r})
store.queue("q").put(b"x")
server = pyqstore.flight.serve(store)
client = subprocess.Popen(
    [sys.executable, "-c", {HOLDER!r}, "grpc://" + server.address],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE)
client.stdout.readline()
raise RuntimeError("of main")
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=2 * HANGS_S
    )
    assert "RuntimeError: of main" in ended.stderr
    with pyqstore.open(path) as store:
        assert store.queue("q").get(timeout=0).body == b"x"

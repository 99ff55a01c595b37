"""Listeners in processes that have no descriptor left: processes of their own, as in that of the
tests others may close one just then."""

import subprocess
import sys

COMMON = """
import contextlib, resource, socket, time
import pyqstore

def wait_until(holds):
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.002)

def is_served():
    with socket.create_connection(address, 30) as client:
        client.sendall(b"AMQP\\0\\0\\x09\\x01")
        assert client.recv(7)[0] == 1  # the frame of connection.start

def limit(count):
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))

def listen():
    global address
    listener = store.listen("127.0.0.1:0")
    host, _, port = listener.address.rpartition(":")
    address = host, int(port)
    return listener

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
store = pyqstore.open(":memory:")
waiting = socket.socket()
stack = contextlib.ExitStack()
"""

TURNED_AWAY = """
listener = listen()
limit(stack.enter_context(socket.socket()).fileno() + 1)
with contextlib.suppress(OSError):
    while True:
        stack.enter_context(socket.socket())
waiting.connect(address)
waiting.settimeout(30)
assert waiting.recv(1) == b""
assert listener.stats()["connections_turned_away"] >= 1
stack.close()
limit(soft)
is_served()
"""

# The descriptor that it gave up to turn a client away cannot be had back.
RESTS = """
most = waiting.fileno() + 20
while stack.enter_context(socket.socket()).fileno() < most:
    pass
listener = listen()  # its descriptors are beyond the limit
limit(most)
waiting.connect(address)
used, begun = time.process_time(), time.monotonic()
time.sleep(2)
assert time.process_time() - used < (time.monotonic() - begun) / 2
assert listener.stats()["connections_accepted"] == 0
limit(soft)
wait_until(lambda: listener.stats()["connections_accepted"] == 1)
stack.close()
is_served()
"""


def play(script: str) -> None:
    command = [sys.executable, "-c", COMMON + script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_clients_are_turned_away_when_no_descriptor_is_left() -> None:
    play(TURNED_AWAY)


def test_a_listener_without_a_spare_descriptor_rests_and_accepts_later() -> None:
    play(RESTS)

"""A process with sessions is killed: nothing that it acknowledged comes again, and nothing that it
did not acknowledge is lost.

The child tells of each message after its acknowledgement has returned; what it was doing when it
was killed may have been done or not.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pyqstore import session as jms

COUNT = 600
TOLD = 60

CHILD = """
import sys
from pyqstore import session as jms

uri, mode, style = sys.argv[1:]
connection = jms.connect(uri)
session = connection.session(mode)
consumer = session.consumer(session.queue("q"), prefetch=50)
held = []

def handle(message):
    held.append(message.text)
    if mode == "transacted":
        if len(held) == 3:
            session.commit()
    elif mode == "client":
        if len(held) == 3:
            message.acknowledge()
    else:
        message.acknowledge()
    if mode not in ("client", "transacted") or len(held) == 3:
        if style == "listener" and mode == "auto":
            # Its predecessor is acknowledged: this one's listener has not returned.
            previous, held[:] = held[:-1], held[-1:]
        else:
            previous, held[:] = held[:], []
        if previous:
            print(*previous, flush=True)

if style == "listener":
    import threading
    consumer.listener = handle
    threading.Event().wait()
while True:
    handle(consumer.receive())
"""


@pytest.mark.crash
@pytest.mark.parametrize("style", ["receive", "listener"])
@pytest.mark.parametrize("mode", ["auto", "client", "individual", "transacted"])
def test_a_kill_loses_nothing_and_repeats_nothing_that_was_acknowledged(
    path: Path, mode: str, style: str
) -> None:
    uri = f"qstore://{path}?sendAcksAsync=false"
    with jms.connect(f"{uri}&useAsyncSend=true") as connection, connection.session() as session:
        producer = session.producer(session.queue("q"))
        for number in range(COUNT):
            producer.send(str(number))
    acknowledged: set[str] = set()
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, uri, mode, style], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child.stdout:
        while len(acknowledged) < TOLD:
            line = child.stdout.readline()
            assert line, "the child ended by itself"
            acknowledged.update(line.split())
        child.send_signal(signal.SIGKILL)
        for line in child.stdout:
            if line.endswith("\n"):
                acknowledged.update(line.split())
    child.wait()
    with jms.connect(f"qstore://{path}") as connection, connection.session() as session:
        consumer = session.consumer(session.queue("q"))
        left = []
        while (message := consumer.receive(timeout=0)) is not None:
            left.append(message.text)
    assert acknowledged.isdisjoint(left)
    at_once = 3 if mode in ("client", "transacted") else 1
    missing = {str(number) for number in range(COUNT)} - set(left) - acknowledged
    assert len(missing) <= 2 * at_once  # under way, and not told any more
    assert left == sorted(left, key=int)
    assert len(left) == len(set(left))


BURYING = """
import sys, threading
from pyqstore import session as jms

uri, mode, redeliveries = sys.argv[1:]
# Each delivery is the last: after a crash all that was there counts as delivered once.
policy = jms.RedeliveryPolicy(maximum_redeliveries=int(redeliveries))
connection = jms.connect(uri, redelivery=policy)
session = connection.session(mode)
consumer = session.consumer(session.queue("q"), prefetch=50)

def refuse(message):
    print(message.text, flush=True)
    raise ValueError("never")

if session.transacted:
    while (message := consumer.receive()) is not None:
        print(message.text, flush=True)
        session.rollback()
consumer.listener = refuse
threading.Event().wait()
"""


@pytest.mark.crash
@pytest.mark.parametrize("mode", ["auto", "transacted"])
def test_a_kill_leaves_a_dead_letter_in_one_queue(path: Path, mode: str) -> None:
    uri = f"qstore://{path}"
    bodies = [str(number) for number in range(COUNT)]
    with jms.connect(f"{uri}?useAsyncSend=true") as connection, connection.session() as session:
        producer = session.producer(session.queue("q"))
        for body in bodies:
            producer.send(body)
    for turn in range(5):
        child = subprocess.Popen(
            [sys.executable, "-c", BURYING, uri, mode, str(min(turn, 1))],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert child.stdout is not None
        with child.stdout:
            for _ in range(10 + turn):
                assert child.stdout.readline(), "the child ended by itself"
            child.send_signal(signal.SIGKILL)
        child.wait()
    with jms.connect(uri) as connection, connection.session() as session:
        left = [message.text for message in session.browse(session.queue("q"))]
        dead = [message.text for message in session.browse(session.queue("ActiveMQ.DLQ"))]
    assert len(dead) >= 5 * 8
    assert sorted(left + dead, key=int) == bodies

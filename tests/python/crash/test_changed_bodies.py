"""Bodies and batches that another thread changes while they are published, then SIGKILL.

A body in the last commit that does not fit its checksum looks like a commit that the crash tore,
and everything behind it goes with it.  So what is written must be what was checksummed, whatever
the publisher does with its memory.  The worker says "confirmed" when all is durable, and kills
itself.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pyqstore

pytestmark = pytest.mark.crash

COUNT = 50

WORKER = """
import os, signal, sys, threading
import numpy as np, pyarrow as pa
import pyqstore

kind, path = sys.argv[1:]
persistent = pyqstore.Properties(delivery_mode=2)
body = bytearray(32 << 20)
view = np.frombuffer(body, dtype=np.uint8)
starts = np.linspace(0, len(body), 9).astype(np.int32)
offsets = starts.copy()
stop = threading.Event()

def change():
    turn = 0
    while not stop.is_set():
        turn += 1
        view.fill(turn % 251)  # in order, so it meets the writer somewhere
        offsets[1:-1] = starts[1:-1] if turn % 2 else starts[1:-1] // 2

def publish(channel):
    if kind == "body":
        channel.basic_publish("", "large", memoryview(body), persistent)
    else:
        column = pa.Array.from_buffers(
            pa.binary(), 8, [None, pa.py_buffer(offsets), pa.py_buffer(body)]
        )
        channel.publish_batch(pa.record_batch([column], ["body"]), routing_key="large")

store = pyqstore.open(path)
large, small = store.channel(), store.channel()
for channel, queue in ((large, "large"), (small, "small")):
    channel.queue_declare(queue, durable=True)
    channel.confirm_select()
thread = threading.Thread(target=change, daemon=True)
thread.start()
for _ in range(3):
    publish(large)
for number in range(50):
    small.basic_publish("", "small", b"%d" % number, persistent)
assert small.wait_for_confirms(timeout=120) and large.wait_for_confirms(timeout=120)
os.write(1, b"confirmed")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["body", "batch"])
def test_others_keep_their_confirmed_messages_when_a_body_changes_during_publish(
    tmp_path: Path, kind: str
) -> None:
    pytest.importorskip("numpy")
    path = tmp_path / "store"
    worker = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", WORKER, kind, str(path)],
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert worker.stdout == b"confirmed", worker.stderr.decode()
    assert worker.returncode == -signal.SIGKILL
    with pyqstore.open(path, create=False) as store, store.channel() as channel:
        assert store.recovery_report.torn_bytes == 0
        for number in range(COUNT):
            message = channel.basic_get("small", auto_ack=True)
            assert message is not None, f"{COUNT - number} of {COUNT} confirmed messages are lost"
            assert message.body == b"%d" % number
        large = 0
        while (message := channel.basic_get("large", auto_ack=True)) is not None:
            large += len(message.body)  # read, so its checksum was right
        assert large == 3 * (32 << 20)

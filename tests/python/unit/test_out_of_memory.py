"""Memory that really runs out: a process with a limit on its address space works until calls raise
MemoryError, and goes on.  Nothing else fails, and what was confirmed is there afterwards."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import pyqstore

Run = Callable[..., subprocess.CompletedProcess[str]]

_WORK = """
import random, resource, sys
import pyqstore

path, seed = sys.argv[1], int(sys.argv[2])
chance = random.Random(seed)
PERSISTENT = pyqstore.Properties(delivery_mode=2)
store = pyqstore.open(path, memory_budget="4MiB", journal_file_bytes="1MiB",
                      message_file_bytes="1MiB", segment_entries=256, checkpoint_bytes="1MiB")
plain, transacted, reader = (store.channel() for _ in range(3))
for queue in "abc":
    plain.queue_declare(queue, durable=True)
    plain.queue_bind(queue, "amq.fanout", "")
plain.confirm_select()
transacted.tx_select()
reader.basic_qos(50)
reader.basic_consume("c", consumer_tag="reader")
confirmed, keys, acked = set(), set(), set()
serial = 0

def body(size):
    global serial
    serial += 1
    return b"%d " % serial + bytes(size)

def publish():
    name = serial + 1
    plain.basic_publish("", "a", body(chance.choice((10, 500, 20_000, 200_000))), PERSISTENT)
    if plain.wait_for_confirms(60):
        confirmed.add(name)

def fan_out():
    plain.basic_publish("amq.fanout", "", body(chance.choice((10, 9_000))), PERSISTENT)
    assert plain.wait_for_confirms(60)

def transaction():
    key = f"key {serial}"
    try:
        for _ in range(5):
            transacted.basic_publish("", "b", body(3_000), PERSISTENT)
        transacted.tx_commit(key=key)
        keys.add(key)
    except MemoryError:
        transacted.tx_rollback()
        raise

def consume():
    for _ in range(20):
        message = reader.next_delivery("reader", timeout=0)
        if message is None:
            return
        message.ack()

def checkpoint():
    store.checkpoint()

def ask():
    for key in keys:
        assert store.transaction_known(key)
        return

WORK = [publish] * 6 + [fan_out] * 3 + [transaction] * 3 + [consume] * 3 + [checkpoint, ask]
errors = rounds = 0
ballast = []
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
while rounds < 1500:
    rounds += 1
    if rounds % 15 == 1:
        # No more than there is now and a little: fragments of what was freed serve for a while.
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + chance.choice((0, 8_192, 100_000)), hard))
        try:
            while True:
                ballast.append(bytearray(chance.choice((4_000, 100_000))))
        except MemoryError:
            pass
    try:
        chance.choice(WORK)()
    except MemoryError:
        errors += 1
    if rounds % 15 == 14:
        ballast.clear()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
ballast.clear()
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
assert not store.stats()["failed"]
for _ in range(20):
    publish()
store.sync()
print(errors, len(confirmed), len(keys))
with open(path + ".known", "w") as file:
    print(*sorted(confirmed), file=file)
    print(*keys, sep="|", file=file)
sys.stdout.flush()
import os
os._exit(0)  # no orderly close: what was confirmed is on the disk
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_what_was_confirmed_is_there_when_memory_ran_out_again_and_again(
    run_python: Run, path: Path, seed: int
) -> None:
    result = run_python(_WORK, path, seed)
    assert result.returncode == 0, result.stderr
    errors, confirmed_count, key_count = map(int, result.stdout.split())
    assert errors > 0
    assert confirmed_count > 20
    assert key_count > 0
    numbers, keys = Path(f"{path}.known").read_text().splitlines()
    with pyqstore.open(path) as store, store.channel() as channel:
        assert store.recovery_report["lost_ranges"] == 0
        assert all(store.transaction_known(key) for key in keys.split("|"))
        found: list[int] = []
        while (message := channel.basic_get("a", auto_ack=True)) is not None:
            found.append(int(message.body.split()[0]))
        assert len(found) == len(set(found))
        assert set(map(int, numbers.split())) <= set(found)
    assert pyqstore.verify(path).damage == ()

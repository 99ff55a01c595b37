"""The stateless functions, over all kinds of buffers. The algorithms have their tests in C; here
it is about what crosses the language border: sizes, kinds of buffers, numbers, errors."""

from __future__ import annotations

import array
import ctypes
import mmap
import os
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from pyqstore._ffi import ffi, lib
from pyqstore.codec import check_properties, crc32c

from ..support import run_python

# content_type "t", headers {"k": "v"}, delivery mode 2
BLOB = b"\xb0\x00\x01t\x00\x00\x00\x08\x01kS\x00\x00\x00\x01v\x02"


def crc32c_by_bits(data: bytes, crc: int = 0) -> int:
    """The definition."""
    crc ^= 0xFFFF_FFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F6_3B78 if crc & 1 else 0)
    return crc ^ 0xFFFF_FFFF


def test_crc32c_gives_the_published_values() -> None:
    assert crc32c(b"") == 0
    assert crc32c(b"123456789") == 0xE306_9283
    assert crc32c(bytes(32)) == 0x8A91_36AA
    assert crc32c(b"\xff" * 32) == 0x62A8_AB43


def test_crc32c_follows_its_definition() -> None:
    data = random.Random(1).randbytes(3000)
    for size in [*range(70), 95, 96, 97, 511, 1023, 3000]:
        assert crc32c(data[:size]) == crc32c_by_bits(data[:size]), size


def test_crc32c_chains() -> None:
    data = bytes(range(256)) * 4
    for cut in (0, 1, 100, 1023, 1024):
        assert crc32c(data[cut:], crc32c(data[:cut])) == crc32c(data)
    assert crc32c(b"", 0xFFFF_FFFF) == 0xFFFF_FFFF


def test_crc32c_counts_bytes_and_not_items() -> None:
    items = array.array("I", [1, 2, 3])
    expected = crc32c(items.tobytes())
    assert crc32c(items) == expected
    assert crc32c(memoryview(items)) == expected
    assert crc32c(bytearray(items.tobytes())) == expected
    assert crc32c(memoryview(b"123456789...")[:9]) == 0xE306_9283


@pytest.mark.parametrize("data", ["text", 5, None, [1]])
def test_crc32c_refuses_what_is_no_buffer(data: object) -> None:
    with pytest.raises(TypeError):
        crc32c(data)  # type: ignore[arg-type]


def test_crc32c_refuses_gaps() -> None:
    with pytest.raises((BufferError, ValueError)):
        crc32c(memoryview(b"123456789")[::2])


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_crc32c_refuses_a_seed_beyond_32_bits(seed: int) -> None:
    with pytest.raises(OverflowError):
        crc32c(b"", seed)


def test_crc32c_runs_in_threads() -> None:
    data = random.Random(2).randbytes(1 << 20)
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(crc32c, [data] * 16)) == {crc32c(data)}


def test_properties_that_are_well_formed_pass() -> None:
    check_properties(b"")
    check_properties(BLOB)
    check_properties(memoryview(bytearray(BLOB)))


def test_properties_cut_off_anywhere_are_refused() -> None:
    for size in range(1, len(BLOB)):
        with pytest.raises(ValueError, match=r"^message properties: "):
            check_properties(BLOB[:size])


def test_a_refusal_names_the_property() -> None:
    with pytest.raises(ValueError, match="headers is damaged or cut off"):
        check_properties(BLOB.replace(b"kS", b"k?"))
    with pytest.raises(ValueError, match="1 bytes after the last one"):
        check_properties(BLOB + b"!")


# What the face in cffi is for: C's own signatures, from Python, over memory that C owns.


def test_memory_that_c_owns_is_read_in_place() -> None:
    data = random.Random(3).randbytes(1 << 20)
    with mmap.mmap(-1, len(data)) as mapped:  # an address, as a C library hands one out
        mapped.write(data)
        exported = (ctypes.c_char * len(data)).from_buffer(mapped)
        address = ffi.cast("void *", ctypes.addressof(exported))
        assert lib.qs_crc32c(0, address, len(data)) == crc32c(data)
        mapped[0] ^= 1  # no copy was kept of it
        assert lib.qs_crc32c(0, address, len(data)) == crc32c(mapped) != crc32c(data)
        assert lib.qs_crc32c(0, address + 1, len(data) - 1) == crc32c(data[1:])
        del exported


def test_statuses_and_error_texts_are_those_of_c() -> None:
    error = ffi.new("qs_error *")
    assert lib.qs_properties_check(BLOB, len(BLOB), error) == 0
    assert lib.qs_properties_check(ffi.NULL, 0, ffi.NULL) == 0
    assert lib.qs_properties_check(BLOB, len(BLOB) - 1, error) != 0
    assert ffi.string(error.text).startswith(b"message properties: ")


# One thread at a time runs Python, for an hour if it does not release the GIL itself.
WITHOUT_THE_GIL = """
import sys, threading
from pyqstore.codec import crc32c

sys.setswitchinterval(3600)
data, told, calls = bytes(1 << 20), threading.Event(), 0

def work():
    global calls
    while calls < 100_000 and not told.is_set():
        crc32c(data)
        calls += 1

worker = threading.Thread(target=work)
worker.start()
told.set()  # can be said only while the worker is in C
worker.join()
print("others ran meanwhile" if calls < 100_000 else "nobody else ran")
"""


def test_other_threads_run_during_a_call() -> None:
    assert run_alone(WITHOUT_THE_GIL) == "others ran meanwhile"


IN_A_FORK = """
import os, sys
import pyqstore
from pyqstore.codec import check_properties, crc32c

with pyqstore.open(":memory:") as store:
    if (child := os.fork()) == 0:
        try:
            store.sync()
        except pyqstore.ForkedStore:
            check_properties(b"")
            os._exit(0 if crc32c(b"123456789") == 0xE3069283 else 1)
        os._exit(2)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_has_it_where_it_has_no_store() -> None:
    assert run_alone(IN_A_FORK) == "0"


def run_alone(script: str) -> str:
    """What a process prints that finds no compiler, nor any other program."""
    done = run_python(script, env=os.environ | {"PATH": "", "CC": "no-compiler"})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()

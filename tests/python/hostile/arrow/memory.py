"""Arrow's C structures, made by hand, in memory where each buffer ends at a page that nobody may
touch: whoever reads a byte too many gets SIGSEGV, without a sanitizer.

https://arrow.apache.org/docs/format/CDataInterface.html
"""

import ctypes
import mmap
import struct
from collections import Counter
from collections.abc import Sequence

from .node import Node

PAGE = mmap.PAGESIZE
SLOT_PAGES = 2
SLOT_BYTES = SLOT_PAGES * PAGE
SLOTS = 3000
_SCHEMA = struct.Struct("<QQQqqQQQQ")  # format, name, metadata, flags, children...
_SCHEMA_RELEASE = 56
_ARRAY = struct.Struct("<qqqqqQQQQQ")  # length, null_count, offset, n_buffers, n_children...
_ARRAY_RELEASE = 64
_STREAM = struct.Struct("<QQQQQ")
_STREAM_RELEASE = 24

_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_NAMES = {name: ctypes.c_char_p(name) for name in (b"arrow_schema", b"arrow_array")}
_STREAM_NAME = ctypes.c_char_p(b"arrow_array_stream")

_Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Get = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_Said = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def _word(address: int) -> ctypes.c_uint64:
    return ctypes.c_uint64.from_address(address)


class Memory:
    """Room for the structures of one batch or stream at a time."""

    def __init__(self) -> None:
        size = SLOTS * (SLOT_BYTES + PAGE)
        self.map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        libc = ctypes.CDLL(None, use_errno=True)
        for slot in range(SLOTS):
            end = self.base + slot * (SLOT_BYTES + PAGE) + SLOT_BYTES
            if libc.mprotect(ctypes.c_void_p(end), ctypes.c_size_t(PAGE), 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
        self.used: list[tuple[int, int]] = []
        """Where the buffers are: what structures refer to."""
        self.slots = 0
        self.structures: list[int] = []
        self.released: Counter[int] = Counter()
        self.on_array = _Release(self._release_array)
        self.on_schema = _Release(self._release_schema)
        self.on_stream = _Release(self._release_stream)
        self.array_address = ctypes.cast(self.on_array, ctypes.c_void_p).value or 0
        self.schema_address = ctypes.cast(self.on_schema, ctypes.c_void_p).value or 0
        self.stream_address = ctypes.cast(self.on_stream, ctypes.c_void_p).value or 0
        self.kept: list[object] = []

    def clear(self) -> None:
        """Forget all, so that the next batch finds room."""
        self.used.clear()
        self.slots = 0
        self.structures: list[int] = []
        self.released.clear()
        self.kept.clear()

    def put(self, contents: bytes, align: int = 1) -> int:
        """The address of a copy that ends where no byte may be read any more."""
        if len(contents) > SLOT_BYTES:
            raise MemoryError(f"{len(contents)} bytes do not fit a slot")
        end = self.slots * (SLOT_BYTES + PAGE) + SLOT_BYTES
        start = (end - len(contents)) // align * align
        self.map[start : start + len(contents)] = contents
        self.slots += 1
        if align == 1:
            self.used.append((start, len(contents)))
        elif align == 8:
            self.structures.append(self.base + start)
        return self.base + start

    def put_pointers(self, pointers: Sequence[int]) -> int:
        return self.put(struct.pack(f"<{len(pointers)}Q", *pointers), 8)

    def text(self, value: bytes | None) -> int:
        return 0 if value is None else self.put(value + b"\0")

    def poison_buffers(self) -> None:
        """What was read is not needed any more."""
        for start, size in self.used:
            self.map[start : start + size] = b"\xdd" * size

    # Release callbacks: they mark the structure, and count.

    def _release_array(self, address: int) -> None:
        self.released[address] += 1
        _word(address + _ARRAY_RELEASE).value = 0

    def _release_schema(self, address: int) -> None:
        self.released[address] += 1
        _word(address + _SCHEMA_RELEASE).value = 0

    def _release_stream(self, address: int) -> None:
        self.released[address] += 1
        _word(address + _STREAM_RELEASE).value = 0

    # Structures.

    def schema(self, node: Node) -> int:
        children = [0 if child is None else self.schema(child) for child in node.children]
        count = len(children) if node.schema_children is None else node.schema_children
        children += [0] * max(0, min(count, 64) - len(children))
        dictionary = 0 if node.dictionary is None else self.schema(node.dictionary)
        return self.put(
            _SCHEMA.pack(
                self.text(node.format),
                self.text(node.name),
                0 if node.metadata is None else self.put(node.metadata, 4),
                _int64(node.flags),
                _int64(count),
                self.put_pointers(children) if children else 0,
                dictionary,
                0 if node.schema_released else self.schema_address,
                0,
            ),
            8,
        )

    def array(self, node: Node) -> int:
        children = [0 if child is None else self.array(child) for child in node.children]
        count = len(children) if node.array_children is None else node.array_children
        children += [0] * max(0, min(count, 64) - len(children))
        buffers = [0 if part is None else self.put(part) for part in node.buffers]
        buffer_count = len(buffers) if node.buffer_count is None else node.buffer_count
        buffers += [0] * max(0, min(buffer_count, 64) - len(buffers))
        dictionary = node.dictionary
        return self.put(
            _ARRAY.pack(
                _int64(node.length),
                _int64(node.null_count),
                _int64(node.offset),
                _int64(buffer_count),
                _int64(count),
                self.put_pointers(buffers) if buffers and not node.no_buffers else 0,
                self.put_pointers(children) if children else 0,
                0 if dictionary is None or node.dictionary_missing else self.array(dictionary),
                0 if node.array_released else self.array_address,
                0,
            ),
            8,
        )

    def finish(self, address: int, release: int) -> int:
        """Release what nobody released, as a capsule's destructor does; how often it was."""
        function = _word(address + release).value
        if function:
            _Release(function)(address)
        return self.released[address]

    def finish_schema(self, address: int) -> int:
        return self.finish(address, _SCHEMA_RELEASE)

    def finish_array(self, address: int) -> int:
        return self.finish(address, _ARRAY_RELEASE)

    def finish_stream(self, address: int) -> int:
        return self.finish(address, _STREAM_RELEASE)

    def capsules(self, schema: int, array: int) -> tuple[object, object]:
        return (
            _capsule(schema, _NAMES[b"arrow_schema"], None),
            _capsule(array, _NAMES[b"arrow_array"], None),
        )

    def stream(self, schema: Node, arrays: Sequence[Node], fails_at: int, code: int) -> "Stream":
        return Stream(self, schema, arrays, fails_at, code)


class Stream:
    """A stream of batches.  It fails with ``code`` at call ``fails_at``; call 0 asks for the
    schema."""

    def __init__(
        self, memory: Memory, schema: Node, arrays: Sequence[Node], fails_at: int, code: int
    ) -> None:
        self.memory = memory
        self.given: list[int] = []
        self.fails_at, self.code = fails_at, code
        self.calls = 0
        self.schema = memory.schema(schema)
        self.arrays = [memory.array(array) for array in arrays]
        self.said = memory.put(b"the stream broke off\0")
        callbacks = _Get(self._get_schema), _Get(self._get_next), _Said(self._get_said)
        memory.kept.extend(callbacks)
        pointers = [ctypes.cast(each, ctypes.c_void_p).value or 0 for each in callbacks]
        self.address = memory.put(_STREAM.pack(*pointers, memory.stream_address, 0), 8)

    def capsule(self) -> object:
        return _capsule(self.address, _STREAM_NAME, None)

    def _fails(self) -> bool:
        self.calls += 1
        return self.calls - 1 == self.fails_at

    def _get_schema(self, _: int, out: int) -> int:
        if self._fails():
            return self.code
        self._move(self.schema, out, _SCHEMA.size, _SCHEMA_RELEASE)
        return 0

    def _get_next(self, _: int, out: int) -> int:
        if self._fails():
            return self.code
        if self.arrays:
            self._move(self.arrays.pop(0), out, _ARRAY.size, _ARRAY_RELEASE)
        else:
            ctypes.memset(out, 0, _ARRAY.size)
        return 0

    def _get_said(self, _: int) -> int:
        return self.said

    def _move(self, source: int, out: int, size: int, release: int) -> None:
        ctypes.memmove(out, source, size)
        if _word(source + release).value:
            self.given.append(out)
        _word(source + release).value = 0


def _int64(value: int) -> int:
    """As the field holds it: what was made larger twice wraps around."""
    return (value + 2**63) % 2**64 - 2**63

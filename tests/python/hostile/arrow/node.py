"""Arrow arrays as Python objects: valid ones made by chance, and what can be wrong with them."""

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

INT_FORMATS = {
    b"c": "b",
    b"C": "B",
    b"s": "h",
    b"S": "H",
    b"i": "i",
    b"I": "I",
    b"l": "q",
    b"L": "Q",
}
STRINGS = (b"u", b"U", b"vu")
BINARIES = (*STRINGS, b"z", b"Z", b"vz", b"w:")
TEXTS = ("message_id", "correlation_id", "type", "app_id", "content_type", "reply_to", "user_id")
ROUTES = {"routing_key": (b"q", b"r", b"nowhere"), "exchange": (b"", b"all")}
SMALL_MAX = 5000
"""Claims of more rows than this must be found wrong before a buffer is read."""


@dataclass
class Node:
    """An array with its type.  None instead of a count: what it really is."""

    format: bytes | None
    name: bytes | None = b""
    length: int = 0
    null_count: int = 0
    offset: int = 0
    buffers: list[bytes | None] = field(default_factory=list)
    children: list["Node | None"] = field(default_factory=list)
    dictionary: "Node | None" = None
    flags: int = 2
    metadata: bytes | None = None
    buffer_count: int | None = None
    schema_children: int | None = None
    array_children: int | None = None
    no_buffers: bool = False
    dictionary_missing: bool = False
    schema_released: bool = False
    array_released: bool = False

    def walk(self) -> list["Node"]:
        found = [self]
        for child in (*self.children, self.dictionary):
            if child is not None:
                found += child.walk()
        return found


class Maker:
    """Valid arrays."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def validity(self, values: list[object], shift: int) -> tuple[bytes | None, int]:
        """The bitmap, and how many nulls there are; sometimes more than has to be said."""
        nulls = sum(value is None for value in values)
        if nulls == 0 and self.chance.random() < 0.7:
            return None, self.chance.choice((0, 0, -1))
        bits = bytearray(self.chance.randbytes((shift + len(values) + 7) // 8))
        for index, value in enumerate(values):
            place = shift + index
            bits[place // 8] &= ~(1 << place % 8) & 0xFF
            bits[place // 8] |= (value is not None) << place % 8
        return bytes(bits), self.chance.choice((nulls, -1))

    def integers(self, values: list[int | None], kind: bytes, shift: int = 0) -> Node:
        bitmap, nulls = self.validity(list(values), shift)
        letter = INT_FORMATS.get(kind, "q")
        given = [0] * shift + [value or 0 for value in values]
        packed = struct.pack(f"<{len(given)}{letter}", *given)
        return Node(kind, b"", len(values), nulls, shift, [bitmap, packed])

    def strings(self, values: list[bytes | None], kind: bytes, shift: int = 0) -> Node:
        bitmap, nulls = self.validity(list(values), shift)
        node = Node(kind, b"", len(values), nulls, shift, [bitmap])
        given = [b"?"] * shift + [value or b"" for value in values]
        if kind.startswith(b"w:"):
            width = int(kind[2:])
            node.buffers.append(b"".join(value.ljust(width, b"_")[:width] for value in given))
        elif kind.startswith(b"v"):
            node.buffers += self.views(given)
        else:
            offsets, data = [0], b""
            for value in given:
                data += value
                offsets.append(len(data))
            letter = "q" if kind in (b"U", b"Z") else "i"
            node.buffers += [struct.pack(f"<{len(offsets)}{letter}", *offsets), data]
        return node

    def views(self, values: list[bytes]) -> list[bytes | None]:
        data = [b"", b""]
        views = b""
        for value in values:
            which = self.chance.randrange(2)
            if len(value) <= 12:
                views += struct.pack("<i12s", len(value), value)
            else:
                place = struct.pack("<ii", which, len(data[which]))
                views += struct.pack("<i4s", len(value), value) + place
                data[which] += value
        return [views, *data, struct.pack("<2q", *map(len, data))]

    def column(self, values: list[bytes | None], kinds: tuple[bytes, ...]) -> Node:
        """Byte strings in any layout, sometimes with a dictionary, sometimes a slice."""
        kind = self.chance.choice(kinds)
        shift = self.chance.choice((0, 0, 0, 1, 3, 8))
        if kind == b"w:":
            kind = b"w:%d" % max((len(value) for value in values if value is not None), default=0)
        if self.chance.random() < 0.75 or kind.startswith(b"w:"):
            return self.strings(values, kind, shift)
        entries = [*sorted({value for value in values if value is not None}), b"not in use"]
        self.chance.shuffle(entries)
        codes = [None if value is None else entries.index(value) for value in values]
        node = self.integers(codes, self.chance.choice(list(INT_FORMATS)), shift)
        node.dictionary = self.strings(list(entries), kind, self.chance.choice((0, 2)))
        return node

    def headers(self, values: list[dict[bytes, bytes | None] | None]) -> Node:
        shift = self.chance.choice((0, 0, 2))
        bitmap, nulls = self.validity(list(values), shift)
        offsets, keys, texts = [0] * (shift + 1), [], []
        for value in values:
            for key, text in (value or {}).items():
                keys.append(key)
                texts.append(text)
            offsets.append(len(keys))
        key, text = self.column(list(keys), STRINGS), self.column(list(texts), STRINGS)
        key.name, text.name = b"key", b"value"
        entries = Node(b"+s", b"entries", len(keys), 0, 0, [None], [key, text])
        packed = struct.pack(f"<{len(offsets)}i", *offsets)
        return Node(b"+m", b"headers", len(values), nulls, shift, [bitmap, packed], [entries])

    def word(self, most: int = 20) -> bytes:
        return self.chance.choice((b"", b"a", b"word", "ä€".encode())) + bytes(
            self.chance.choices(b"abcdefgh ", k=self.chance.randrange(most))
        )

    def some(self, values: list[Any]) -> list[Any]:
        """The same, some of them null."""
        return [None if self.chance.random() < 0.2 else value for value in values]

    def batch(self) -> Node:
        """A batch of messages."""
        rows = self.chance.choice((0, 1, 2, 3, 5, 8, 70))
        body = self.column([b"%d " % row + self.word(40) for row in range(rows)], BINARIES)
        body.name = b"body"
        columns = [body, *self.texts(rows), *self.numbers(rows)]
        if self.chance.random() < 0.3:
            columns.append(self.headers(self.some([self.table() for _ in range(rows)])))
        self.chance.shuffle(columns)
        root = Node(b"+s", b"", rows, 0, 0, [None], list(columns))
        if rows > 1 and self.chance.random() < 0.2:
            root.offset = self.chance.randrange(rows)
            root.length = self.chance.randrange(rows - root.offset + 1)
        return root

    def texts(self, rows: int) -> list[Node]:
        """Some of the columns that hold strings."""
        columns = []
        for name, likely in (("routing_key", 0.4), ("exchange", 0.2), *((t, 0.15) for t in TEXTS)):
            if self.chance.random() > likely:
                continue
            words = ROUTES.get(name) or tuple(self.word() for _ in range(5))
            values = self.some([self.chance.choice(words) for _ in range(rows)])
            columns.append(self.column(values, STRINGS))
            columns[-1].name = name.encode()
        return columns

    def numbers(self, rows: int) -> list[Node]:
        """Some of the columns that hold numbers."""
        columns = []
        for name, most in (("priority", 9), ("delivery_mode", 2), ("timestamp", 100)):
            if self.chance.random() > 0.2:
                continue
            kinds = [*INT_FORMATS, *((b"tss:", b"tsm:UTC") if name == "timestamp" else ())]
            values = self.some([self.chance.randint(1, most) for _ in range(rows)])
            shift = self.chance.choice((0, 3))
            columns.append(self.integers(values, self.chance.choice(kinds), shift))
            columns[-1].name = name.encode()
        return columns

    def table(self) -> dict[bytes, bytes | None]:
        """The headers of a message."""
        count = self.chance.randrange(4)
        return {self.word() + b"%d" % index: self.some([self.word()])[0] for index in range(count)}


# What can be wrong.

ODD = (-1, 0, 1, 2, 3, 7, 64, 255, 4097, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -(2**63))
FORMATS = (
    b"n", b"b", b"c", b"C", b"s", b"i", b"l", b"L", b"e", b"f", b"g", b"z", b"Z", b"u", b"U", b"vz",
    b"vu", b"v", b"w:0", b"w:4", b"w:-1", b"w:99999999999999999999", b"w:", b"d:19,10", b"tdD",
    b"tss:", b"tsm:UTC", b"tsx:", b"ts", b"tDm", b"+l", b"+L", b"+vl", b"+s", b"+m", b"+w:2",
    b"+ud:0,1", b"+r", b"", b"\xff\xfe", b"uu", b"%s%n",
)  # fmt: skip
NAMES = (
    b"", b"body", b"headers", b"color", b"BODY", b"\xff\xfe", b"x" * 3000, b"%s%n", b"priority",
)  # fmt: skip
EXTENSION = struct.pack("<i", 1) + struct.pack("<i20si5s", 20, b"ARROW:extension:name", 5, b"thing")
Mutation = Callable[[random.Random, Node], None]


def wrong_length(chance: random.Random, node: Node) -> None:
    node.length = chance.choice((*ODD, node.length + 1, node.length - 1))


def wrong_offset(chance: random.Random, node: Node) -> None:
    node.offset = chance.choice((*ODD, node.offset + 1, node.offset - 1))


def wrong_null_count(chance: random.Random, node: Node) -> None:
    node.null_count = chance.choice(ODD)


def missing_buffer(chance: random.Random, node: Node) -> None:
    if node.buffers:
        node.buffers[chance.randrange(len(node.buffers))] = None


def wrong_bytes(chance: random.Random, node: Node) -> None:
    """A few bytes of a buffer."""
    places = [index for index, part in enumerate(node.buffers) if part]
    if places:
        index = chance.choice(places)
        part = bytearray(node.buffers[index] or b"")
        for _ in range(chance.randint(1, 4)):
            part[chance.randrange(len(part))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        node.buffers[index] = bytes(part)


def wrong_number(chance: random.Random, node: Node) -> None:
    """An offset, an index, a word of a view."""
    if len(node.buffers) < 2 or not node.buffers[1]:
        return
    part = bytearray(node.buffers[1])
    width = 8 if node.format in (b"U", b"Z", b"l", b"L") else 4
    if len(part) >= width:
        at = chance.randrange(len(part) // width) * width
        value = chance.choice((*ODD, chance.randrange(-5, 60))) & (2 ** (8 * width) - 1)
        part[at : at + width] = value.to_bytes(width, "little")
        node.buffers[1] = bytes(part)


def wrong_buffer_count(chance: random.Random, node: Node) -> None:
    node.buffer_count = chance.choice((*ODD, len(node.buffers) + 1))


def more_buffers(chance: random.Random, node: Node) -> None:
    node.buffers.insert(
        chance.randrange(len(node.buffers) + 1), chance.choice((None, b"", b"12345678"))
    )


def wrong_format(chance: random.Random, node: Node) -> None:
    node.format = chance.choice((*FORMATS, None))


def wrong_name(chance: random.Random, node: Node) -> None:
    node.name = chance.choice((*NAMES, None))


def wrong_children(chance: random.Random, node: Node) -> None:
    how = chance.randrange(4)
    if how == 0 and node.children:
        node.children.pop(chance.randrange(len(node.children)))
    elif how == 1:
        node.children.append(None)
    elif how == 2 and node.children:
        node.children[chance.randrange(len(node.children))] = None
    elif len(node.children) > 1:
        chance.shuffle(node.children)


def wrong_child_count(chance: random.Random, node: Node) -> None:
    if chance.randrange(2):
        node.schema_children = chance.choice(ODD)
    else:
        node.array_children = chance.choice(ODD)


def wrong_dictionary(chance: random.Random, node: Node) -> None:
    how = chance.randrange(4)
    if how == 0:
        node.dictionary_missing = True
    elif how == 1:
        node.dictionary = None
    elif how == 2:
        node.dictionary = Maker(chance).strings([b"one", None, b"three"], chance.choice(STRINGS))
    elif node.dictionary is not None:
        node.dictionary.dictionary = Maker(chance).strings([b"deep"], b"u")


def no_buffers(chance: random.Random, node: Node) -> None:
    node.no_buffers = True


def released(chance: random.Random, node: Node) -> None:
    if chance.randrange(2):
        node.schema_released = True
    else:
        node.array_released = True


def extension(chance: random.Random, node: Node) -> None:
    node.metadata = EXTENSION


def wrong_flags(chance: random.Random, node: Node) -> None:
    node.flags = chance.choice(ODD)


def doubled(chance: random.Random, node: Node) -> None:
    """A column in a place where another is expected."""
    if node.children and node.children[0] is not None:
        node.children.append(chance.choice(node.children))


MUTATIONS: tuple[Mutation, ...] = (
    wrong_length, wrong_offset, wrong_null_count, missing_buffer, wrong_bytes, wrong_number,
    wrong_number, wrong_number, wrong_buffer_count, more_buffers, wrong_format, wrong_name,
    wrong_children, wrong_child_count, wrong_dictionary, no_buffers, released, extension,
    wrong_flags, doubled,
)  # fmt: skip


def mutate(chance: random.Random, root: Node) -> list[str]:
    """Make one to three things wrong; says what."""
    done = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        mutation = chance.choice(MUTATIONS)
        node = chance.choice(root.walk())
        mutation(chance, node)
        done.append(f"{mutation.__name__} of {node.format!r} {(node.name or b'')[:20]!r}")
    return done

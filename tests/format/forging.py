"""Stores as builds would have left them that knew less of arguments than this one.

A name that means nothing, ``x-max-lengtH``, is stored with any value.  In the files it becomes the
one that means something, ``x-max-length``, and the checksums are made again.
"""

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from pyqstore.codec import crc32c

PAGE = 4096
BLOCKS_AT = 3 * PAGE


def stand_in(name: str) -> str:
    """What an argument is called until ``forge``."""
    return name[:-1] + name[-1].upper()


def forge(store: Path, names: list[str]) -> None:
    """In a store that is closed: the stand-ins of these arguments get their names."""
    words = {stand_in(name).encode(): name.encode() for name in names}
    pattern = re.compile(b"|".join(map(re.escape, sorted(words, key=len, reverse=True))))
    for path in (store / "journal").glob("*.jnl"):
        data = bytearray(path.read_bytes())
        for at, end in list(_blocks(data)):
            data[at + 64 : end] = pattern.sub(lambda found: words[found[0]], data[at + 64 : end])
            crc = crc32c(data[at + 64 : end], crc32c(data[at : at + 60]))
            struct.pack_into("<I", data, at + 60, crc)
        path.write_bytes(data)
    manifest = bytearray((store / "MANIFEST").read_bytes())
    (number,) = struct.unpack_from("<Q", manifest, 56)
    if number:
        path = store / "checkpoint" / f"{number:010d}.ckp"
        path.write_bytes(pattern.sub(lambda found: words[found[0]], path.read_bytes()))
        struct.pack_into("<I", manifest, 80, crc32c(path.read_bytes()))
        struct.pack_into("<I", manifest, len(manifest) - 4, crc32c(manifest[:-4]))
        (store / "MANIFEST").write_bytes(manifest)


def _blocks(data: bytearray) -> Iterator[tuple[int, int]]:
    """Where a journal file's blocks begin and end."""
    at = BLOCKS_AT
    while at + 64 <= len(data) and data[at : at + 4] == b"QSJB":
        (used,) = struct.unpack_from("<I", data, at + 36)
        end = at + 64 + used
        (crc,) = struct.unpack_from("<I", data, at + 60)
        if crc32c(data[at + 64 : end], crc32c(data[at : at + 60])) != crc:
            return
        yield at, end
        at = -(-end // PAGE) * PAGE

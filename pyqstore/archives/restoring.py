"""Makes a store from an archive, as it was at a moment."""

from __future__ import annotations

import logging
import os
import re
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ..backups.restoring import Making, fetch, in_rounds
from ..backups.target import Target
from ..callbacks import check_callable
from ..findings import Verification
from ..times import EPOCH, since_1970
from .keeping import FILES, Base, bases, beginning, made_of, parts_of, read_base
from .parts import Head, Part, decoded, head_name
from .writing import StoreWriter

__all__ = ["Restored", "restore"]

_log = logging.getLogger("pyqstore")
_AT_ONCE = 4  # parts that are fetched
_CHECKPOINT = struct.Struct("<QQ")  # its number and LSN
_CHECKPOINT_AT = 56  # in MANIFEST
_BASE_LSN = struct.Struct("<Q")
_BASE_LSN_AT = 112  # in MANIFEST, of its first session
_JOURNAL = re.compile(r"journal/(\d{10})\.jnl")


class Restored(NamedTuple):
    """A store that was made from an archive."""

    base: Base
    """The base at which it began."""
    parts: int
    """The number of parts that were written after it."""
    moment: datetime
    """The store is as it was then, in UTC, or some tenths of a second before."""
    lsn: int
    """The end of its journal."""
    verification: Verification


@dataclass(frozen=True)
class _Plan:
    base: Base
    heads: dict[Head, int]
    """Parts, and the bytes of their objects."""
    lsn: int
    """The LSN up to which the journal is written."""
    moment: datetime

    @property
    def size(self) -> int:
        """Bytes to fetch."""
        return self.base.size + sum(self.heads.values())


def restore(
    target: Target,
    directory: str | os.PathLike[str],
    until: datetime | None = None,
    progress: Callable[[int, int], object] = lambda _done, _total: None,
) -> Restored:
    """Make a store from an archive in a directory that does not exist or is empty.  The store is
    that of the last archived moment, or of the last one not after ``until``, which is local time if
    it has no zone.  Every checksum is compared, and the store verified, before the directory gets
    its name; the store is durable when this returns.  ``progress`` gets numbers of bytes.

    FileExistsError: the directory is not empty; FileNotFoundError: there is no base, or none so
    old, or the parent directory does not exist; ValueError: something in the archive is damaged or
    missing; the text says what; OSError.
    """
    check_callable(progress=progress)
    making = Making(directory)
    plan = _planned(target, None if until is None else EPOCH + since_1970(until))
    done, lock = 0, threading.Lock()

    def count(size: int) -> None:
        nonlocal done
        with lock:
            done += size
            progress(done, plan.size)

    with making as folder:
        others, manifest = in_rounds(plan.base.files)
        fetch(target, others, folder, count, FILES)
        names = [_JOURNAL.fullmatch(each.name) for each in others]
        first = min((int(found[1]) for found in names if found is not None), default=0)
        least = _write_parts(target, plan, StoreWriter(folder, plan.base.uuid, first), count)
        fetch(target, manifest, folder, count, FILES)
        found = making.name_it(lambda verified: _check_end(folder, target, plan, least, verified))
    return Restored(plan.base, len(plan.heads), plan.moment, plan.lsn, found)


# ---- what to fetch ----


def _planned(target: Target, until: datetime | None) -> _Plan:
    base = _chosen(target, until)
    heads = parts_of(target, base.stream)
    until_us = None if until is None else int(until.timestamp() * 1e6)
    wanted = _behind(target, base, list(heads), until_us)
    if wanted:
        lsn, time_us = _cut(_read(target, base, wanted[-1])[0], until_us)
        if lsn >= base.lsn:
            moment = max(base.made, datetime.fromtimestamp(time_us / 1e6, UTC))
            return _Plan(base, {each: heads[each] for each in wanted}, lsn, moment)
    return _Plan(base, {}, base.lsn, base.made)  # it has all of it


def _chosen(target: Target, until: datetime | None) -> Base:
    names = bases(target)
    if not names:
        raise FileNotFoundError(f"{target.place}: there is no base of an archive")
    found = [each for each in names if until is None or made_of(each) <= until]
    if not found:
        raise FileNotFoundError(
            f"{target.place}: the archive begins at {made_of(names[0]).isoformat()}, and nothing is"
            f" there of {until.isoformat() if until else ''}"
        )
    for name in reversed(found):
        try:
            return read_base(target, name)
        except ValueError as error:
            if name == found[0]:
                raise
            _log.warning("restore: %s; it begins at the base before it", error)
    raise AssertionError


def _behind(target: Target, base: Base, heads: list[Head], until_us: int | None) -> list[Head]:
    """The parts that continue the base, without a gap, up to the moment."""
    begin = beginning(heads, base.from_lsn)
    behind = [each for each in heads if each.from_lsn >= begin]
    wanted = [each for each in behind if until_us is None or each.time_us <= until_us]
    if wanted and wanted[0].from_lsn > base.from_lsn:
        raise ValueError(
            f"{target.place}: parts/{base.stream} begins with part {wanted[0].number}, and those"
            f" before it, which base {base.name} needs, are missing"
        )
    for before, each in pairwise(wanted):
        if each.number != before.number + 1:
            raise ValueError(
                f"{target.place}: part {before.number + 1} of parts/{base.stream} is missing."
                f"  What was before it can be restored: --until {_shown(before.time_us)}"
            )
    return wanted


def _cut(last: Part, until_us: int | None) -> tuple[int, int]:
    """The LSN up to which the last part counts, and its moment."""
    times = [each for each in last.times if until_us is None or each[0] <= until_us]
    time_us, lsn = times[-1] if times else (last.head.time_us, last.to_lsn)
    return (last.to_lsn if until_us is None else lsn), time_us


def _shown(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat()


# ---- fetching ----


def _read(target: Target, base: Base, head: Head) -> tuple[Part, str, memoryview]:
    """A part, its SHA-256, and its data.  ValueError: it differs from what is expected."""
    name = f"parts/{base.stream}/{head_name(head)}"
    content = target.content(name)
    try:
        part, digest, data = decoded(content)
        if (part.uuid, part.stream, part.head) != (base.uuid, base.stream, head):
            raise ValueError("it is another part than its name says")
    except ValueError as error:
        raise ValueError(
            f"{target.place}: {name} is damaged: {error}.  What was before it can be restored:"
            f" --until {_shown(head.time_us - 1)}"
        ) from None
    return part, digest, data


def _write_parts(
    target: Target, plan: _Plan, writer: StoreWriter, count: Callable[[int], object]
) -> int:
    """The end of the last atomic group; 0: it begins before the last part."""
    chain: dict[Head, tuple[str, str, int]] = {}

    def take(head: Head) -> Head:
        part, digest, data = _read(target, plan.base, head)
        writer.write(part, data, plan.lsn)
        chain[head] = part.before, digest, part.to_lsn
        return head

    with ThreadPoolExecutor(_AT_ONCE, "pyqstore-restore") as pool:
        running = [pool.submit(take, each) for each in plan.heads]
        try:
            for each in as_completed(running):
                count(plan.heads[each.result()])
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    for before, head in pairwise(plan.heads):
        _, digest, to_lsn = chain[before]
        if (chain[head][0], head.from_lsn) != (digest, to_lsn):
            raise ValueError(
                f"{target.place}: part {head.number} of parts/{plan.base.stream} does not continue"
                f" part {before.number}"
            )
    writer.close()
    return writer.end_lsn


def _check_end(
    folder: Path, target: Target, plan: _Plan, least: int, verified: Verification
) -> None:
    """ValueError: an open of the store would find an end before the written one."""
    if verified.damages:
        return  # told, and counted from another place
    manifest = (folder / "MANIFEST").read_bytes()
    checkpoint, lsn = _CHECKPOINT.unpack_from(manifest, _CHECKPOINT_AT)
    (base_lsn,) = _BASE_LSN.unpack_from(manifest, _BASE_LSN_AT)
    end = (lsn if checkpoint else base_lsn) + verified.journal_bytes
    if end < least:
        raise ValueError(
            f"{target.place}: base {plan.base.name} and the parts behind it make a store that ends"
            f" at LSN {end} and not at {least}: what is between them would be lost.  Restore to an"
            f" earlier moment, --until {_shown(int(plan.base.made.timestamp() * 1e6))}, or of"
            " another base"
        )

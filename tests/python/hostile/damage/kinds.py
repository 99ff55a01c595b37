"""The kinds of damage, each done to one file of a copied store."""

import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PAGE = 4096
CLASSES = ("MANIFEST", "journal", "checkpoint", "index", "messages", "streams", "other")


@dataclass
class Target:
    """What a damage may use: the file, its store, and where other bytes come from."""

    root: Path
    name: str
    """The file, relative to the store."""
    older: Sequence[Path]
    donor: Path
    random: random.Random
    told: list[str] = field(default_factory=list)
    """What was done, for people."""
    at: int = 0
    """Where, if it is one place."""
    touched: set[str] = field(default_factory=set)
    """All files that are not what they were."""

    def __post_init__(self) -> None:
        self.touched.add(self.name)

    @property
    def file(self) -> Path:
        return self.root / self.name

    def offset(self, contents: bytes) -> int:
        """Where it matters: most of a file is padding, and its structure stands at page starts."""
        how = self.random.randrange(4)
        if how == 0:
            return self.random.randrange(min(len(contents), 160))
        if how == 1:
            page = self.random.randrange((len(contents) + PAGE - 1) // PAGE) * PAGE
            return min(page + self.random.randrange(64), len(contents) - 1)
        offset = 0
        for _ in range(40):
            offset = self.random.randrange(len(contents))
            if contents[offset]:
                break
        return offset

    def page(self, contents: bytes) -> int:
        """The offset of a page; mostly one with something in it."""
        page = 0
        for _ in range(20):
            page = self.random.randrange((len(contents) + PAGE - 1) // PAGE) * PAGE
            if any(contents[page : page + PAGE]):
                break
        return page

    def write(self, contents: bytes, what: str) -> bool:
        if contents == self.file.read_bytes():
            return False
        self.file.write_bytes(contents)
        self.told.append(what)
        return True


Damage = Callable[[Target], bool]
"""Does it; False: it cannot be done to this file, or changes nothing."""


def class_of(name: str) -> str:
    return name.split("/")[0] if name.split("/")[0] in CLASSES else "other"


def flip_bit(target: Target) -> bool:
    contents = bytearray(target.file.read_bytes())
    if not contents:
        return False
    offset = target.offset(bytes(contents))
    target.at = offset
    contents[offset] ^= 1 << target.random.randrange(8)
    return target.write(bytes(contents), f"at {offset}")


def _truncate(target: Target, size: int) -> bool:
    contents = target.file.read_bytes()
    return size < len(contents) and target.write(contents[: max(size, 0)], f"to {size}")


def truncate_by_one(target: Target) -> bool:
    return _truncate(target, target.file.stat().st_size - 1)


def truncate_to_half(target: Target) -> bool:
    return _truncate(target, target.file.stat().st_size // 2)


def truncate_to_nothing(target: Target) -> bool:
    return _truncate(target, 0)


def truncate_to_page(target: Target) -> bool:
    pages = target.file.stat().st_size // PAGE
    return pages > 0 and _truncate(target, target.random.randrange(pages + 1) * PAGE)


def extend_with_zeros(target: Target) -> bool:
    count = target.random.choice((1, 512, PAGE, 16 * PAGE))
    return target.write(target.file.read_bytes() + bytes(count), f"by {count}")


def extend_with_garbage(target: Target) -> bool:
    count = target.random.choice((1, 512, PAGE, 16 * PAGE))
    contents = target.file.read_bytes() + target.random.randbytes(count)
    return target.write(contents, f"by {count}")


def _put(target: Target, at: int, piece: bytes, what: str) -> bool:
    contents = target.file.read_bytes()
    target.at = at
    piece = piece[: len(contents) - at]
    return target.write(contents[:at] + piece + contents[at + len(piece) :], f"{what} at {at}")


def zero_page(target: Target) -> bool:
    contents = target.file.read_bytes()
    return bool(contents) and _put(target, target.page(contents), bytes(PAGE), "zeros")


def garbage_page(target: Target) -> bool:
    contents = target.file.read_bytes()
    at = target.page(contents) if contents else 0
    return bool(contents) and _put(target, at, target.random.randbytes(PAGE), "garbage")


def zero_all(target: Target) -> bool:
    return target.write(bytes(target.file.stat().st_size), "all")


def garbage_all(target: Target) -> bool:
    return target.write(target.random.randbytes(target.file.stat().st_size), "all")


def zero_tail(target: Target) -> bool:
    """From a page on, as if the last writes had never come."""
    contents = target.file.read_bytes()
    at = target.at = target.page(contents) if contents else 0
    return target.write(contents[:at] + bytes(len(contents) - at), f"from {at}")


def swap_pages(target: Target) -> bool:
    contents = target.file.read_bytes()
    if len(contents) < 2 * PAGE:
        return False
    first, second = sorted((target.page(contents), target.page(contents)))
    if first == second or second + PAGE > len(contents):
        return False
    one, other = contents[first : first + PAGE], contents[second : second + PAGE]
    between = contents[first + PAGE : second]
    mixed = contents[:first] + other + between + one + contents[second + PAGE :]
    return target.write(mixed, f"{first} and {second}")


def _others(target: Target, same_class: bool) -> list[Path]:
    found = []
    for path in sorted(target.root.rglob("*")):
        name = str(path.relative_to(target.root))
        alike = class_of(name) == class_of(target.name)
        if path.is_file() and name not in (target.name, "LOCK") and alike >= same_class:
            found.append(path)
    return found


def swap_files(target: Target) -> bool:
    others = _others(target, target.random.random() < 0.8)
    if not others:
        return False
    other = target.random.choice(others)
    contents = other.read_bytes()
    if contents == target.file.read_bytes():
        return False
    other.write_bytes(target.file.read_bytes())
    name = str(other.relative_to(target.root))
    target.touched.add(name)
    return target.write(contents, f"with {name}")


def older_copy(target: Target) -> bool:
    candidates = [older / target.name for older in target.older]
    candidates = [path for path in candidates if path.is_file()]
    if not candidates:
        return False
    path = target.random.choice(candidates)
    return target.write(path.read_bytes(), f"of {path.relative_to(path.parents[1])}")


def lost_page(target: Target) -> bool:
    """A write that the disk said it did, and did not."""
    candidates = [older / target.name for older in target.older]
    candidates = [path for path in candidates if path.is_file()]
    contents = target.file.read_bytes()
    if not candidates or not contents:
        return False
    at = target.page(contents)
    piece = target.random.choice(candidates).read_bytes()[at : at + PAGE]
    return bool(piece) and _put(target, at, piece, "old page")


def delete(target: Target) -> bool:
    target.file.unlink()
    target.told.append("gone")
    return True


def foreign(target: Target) -> bool:
    """The file of the same name of another store."""
    path = target.donor / target.name
    return path.is_file() and target.write(path.read_bytes(), "from another store")


def foreign_page(target: Target) -> bool:
    path = target.donor / target.name
    contents = target.file.read_bytes()
    if not path.is_file() or not contents:
        return False
    at = target.page(contents)
    return _put(target, at, path.read_bytes()[at : at + PAGE], "another store's page")


def misdirected_within(target: Target) -> bool:
    """A page of this file, written to another place of it."""
    contents = target.file.read_bytes()
    if len(contents) < 2 * PAGE:
        return False
    source, at = target.page(contents), target.random.randrange(len(contents) // PAGE) * PAGE
    return source != at and _put(target, at, contents[source : source + PAGE], f"page {source}")


def misdirected_from(target: Target) -> bool:
    """A page of another file, written into this one."""
    others = _others(target, target.random.random() < 0.7)
    contents = target.file.read_bytes()
    if not others or not contents:
        return False
    other = target.random.choice(others)
    piece = other.read_bytes()
    source = target.page(piece) if piece else 0
    at = target.random.choice((source if source < len(contents) else 0, target.page(contents)))
    what = f"page {source} of {other.relative_to(target.root)}"
    return _put(target, at, piece[source : source + PAGE], what)


def another_name(target: Target, name: str) -> str | None:
    """A name like this one, with another number or generation."""
    path = Path(name)
    stem = path.stem
    if not stem[:10].isalnum() or not stem[:1].isdigit():
        return None
    if path.suffix == ".seg":
        queue, number, generation = stem.split("-")
        part = target.random.randrange(3)
        numbers = [int(queue, 16), int(number, 16), int(generation, 16)]
        numbers[part] += target.random.choice((1, 2, 5))
        new = f"{numbers[0]:016x}-{numbers[1]:012x}-{numbers[2]:08x}"
    elif path.suffix == ".str":
        numbers = [int(part, 16) for part in stem.split("-")]
        numbers[target.random.randrange(2)] += target.random.choice((1, 2, 5))
        new = f"{numbers[0]:016x}-{numbers[1]:016x}"
    elif path.suffix == ".msg" and target.random.random() < 0.5:
        number, _, generation = stem.partition("-")
        new = f"{number}-{int(generation or 0) + 1:04d}"
    else:
        number, dash, generation = stem.partition("-")
        step = target.random.choice((1, 2, 7, -1))
        new = f"{max(1, int(number) + step):010d}{dash}{generation}"
    return str(path.with_name(new + path.suffix))


def duplicate(target: Target) -> bool:
    """A copy under another valid name, where no file is."""
    name = another_name(target, target.name)
    if name is None or (target.root / name).exists():
        return False
    shutil.copy2(target.file, target.root / name)
    target.touched = {name}
    target.told.append(f"as {name}")
    return True


def rename(target: Target) -> bool:
    name = another_name(target, target.name)
    if name is None or (target.root / name).exists():
        return False
    target.file.rename(target.root / name)
    target.touched.add(name)
    target.told.append(f"to {name}")
    return True


def fifo(target: Target) -> bool:
    target.file.unlink()
    os.mkfifo(target.file, 0o600)
    target.told.append("in its place")
    return True


def symlink(target: Target) -> bool:
    aside = target.root.parent / "aside"
    shutil.copy2(target.file, aside)
    target.file.unlink()
    target.file.symlink_to(target.random.choice((aside, Path("nowhere"), target.file)))
    target.told.append(f"to {target.file.readlink().name}")
    return True


def hard_link(target: Target) -> bool:
    aside = target.root.parent / "aside"
    aside.unlink(missing_ok=True)
    os.link(target.file, aside)
    target.told.append("a second name")
    return True


def directory(target: Target) -> bool:
    target.file.unlink()
    target.file.mkdir()
    target.told.append("in its place")
    return True


def no_permission(target: Target) -> bool:
    if os.geteuid() == 0:
        return False  # root may read it all the same
    target.file.chmod(0)
    target.told.append("mode 0")
    return True


def delete_folder(target: Target) -> bool:
    folder = target.file.parent
    if folder == target.root:
        return False
    target.touched.update(f"{folder.name}/{entry}" for entry in os.listdir(folder))
    shutil.rmtree(folder)
    target.told.append(folder.name)
    return True


def manifest_tmp(target: Target) -> bool:
    """A leftover of a replacement that a crash cut off; it must never count."""
    older = [path / "MANIFEST" for path in target.older]
    contents = target.random.choice(
        [path.read_bytes() for path in older] + [b"", target.random.randbytes(200)]
    )
    (target.root / "MANIFEST.tmp").write_bytes(contents)
    target.touched = {"MANIFEST.tmp"}
    target.told.append(f"of {len(contents)} bytes")
    return True


DAMAGES: tuple[Damage, ...] = (
    flip_bit, truncate_by_one, truncate_to_half, truncate_to_nothing, truncate_to_page,
    extend_with_zeros, extend_with_garbage, zero_page, garbage_page, zero_all, garbage_all,
    zero_tail, swap_pages, swap_files, older_copy, lost_page, delete, foreign, foreign_page,
    misdirected_within, misdirected_from, duplicate, rename, fifo, symlink, hard_link,
    directory, no_permission, delete_folder, manifest_tmp,
)  # fmt: skip

"""The options of a store: what may be given, and what the engine is told."""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypedDict

from .callbacks import check_callable

__all__ = [
    "SYNC",
    "StoreOptions",
    "bytes_of",
    "checked_path",
    "decoded",
    "encoded",
    "number_of",
    "signature_of",
    "word_of",
]


class StoreOptions(TypedDict, total=False):
    """The options of :func:`open`.  Sizes are bytes, as int or as str with a unit ("64MiB",
    "1.5GB")."""

    memory_budget: int | str
    """Memory for messages and what is kept of them; what is beyond lies on disk.  256 MiB."""
    embed_below: int | str
    """Properties + body smaller than this stay in the journal and index; 0: never.  4096."""
    segment_entries: int
    """Messages of an index segment, a power of two from 16 to 65536, fixed when the store is made;
    16384."""
    journal_file_bytes: int | str
    """Size of a journal file, a power of two; 64 MiB."""
    message_file_bytes: int | str
    """Size of a message store file, a power of two; 64 MiB."""
    body_bytes_max: int | str
    """A larger body is refused; 128 MiB."""
    checkpoint_bytes: int | str
    """A checkpoint is made after so many bytes of journal, and at close; 0: only when asked for.
    256 MiB."""
    checkpoint_interval: float | None
    """And at the latest after so many seconds; 0 or None: by size alone.  60."""
    commit_delay_us: int
    """Microseconds to wait for a bigger group before a commit; 0."""
    sync: Literal["fdatasync", "none"]
    """"none" confirms without syncing: for benchmarks only, and stats() tells."""
    recovery: Literal["strict", "salvage"]
    """What to do about damage: refuse, or copy out what is whole and count what is lost."""
    create: bool
    """Make the store when there is none; True."""
    read_only: bool
    """Look and change nothing: no file is written, no channel opened; False.  The journal is
    replayed into memory, whatever ``memory_budget`` says."""
    control: bool
    """Listen for this user's tools on this machine, so that the commands of pyqstore work while the
    store is open; True.  Without effect in memory and with ``read_only``."""
    progress: Callable[[int, int], object] | None
    """Called now and then while the journal is replayed: bytes read, bytes that there are."""


_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
SYNC = {"fdatasync": 0, "none": 1}
_RECOVERY = {"strict": 0, "salvage": 1}


class _Number(NamedTuple):
    """A number's default and range; size: strings with a unit are taken too."""

    default: int
    least: int
    most: int
    power_of_two: bool = False
    size: bool = True


_NUMBERS = {
    "memory_budget": _Number(2**28, 2**16, 2**62),
    "embed_below": _Number(4096, 0, 2**40),
    "segment_entries": _Number(16384, 16, 2**16, power_of_two=True, size=False),
    "journal_file_bytes": _Number(2**26, 2**16, 2**31, power_of_two=True),
    "message_file_bytes": _Number(2**26, 2**16, 2**34, power_of_two=True),
    "body_bytes_max": _Number(2**27, 1, 2**30),
    "checkpoint_bytes": _Number(2**28, 0, 2**62),
    "commit_delay_us": _Number(0, 0, 10**6, size=False),
}
_WORDS: dict[str, dict[str, int]] = {"sync": SYNC, "recovery": _RECOVERY}
_FLAGS = {"create": True, "read_only": False, "control": True}
_INTERVAL = 60.0
_INTERVAL_MOST = 2**22
_KNOWN = (*_NUMBERS, "checkpoint_interval", *_WORDS, *_FLAGS, "progress")


def encoded(options: Mapping[str, Any]) -> dict[str, Any]:
    """All options as ``_core.Store`` takes them: those given, checked, and the others' defaults.

    TypeError: an unknown option, or one of a wrong type; ValueError: one out of range.
    """
    unknown = sorted(set(options) - set(_KNOWN))
    if unknown:
        raise TypeError(f"unknown option {unknown[0]!r}; there are {', '.join(_KNOWN)}")
    numbers = {
        name: _number(name, options.get(name, what.default), what)
        for name, what in _NUMBERS.items()
    }
    if "segment_entries" not in options:
        numbers["segment_entries"] = 0  # as the store was made; 16384 when it is new
    words = {
        name: number_of(name, options.get(name, next(iter(known))), known)
        for name, known in _WORDS.items()
    }
    flags = {name: _flag(name, options.get(name, default)) for name, default in _FLAGS.items()}
    progress = options.get("progress")
    check_callable(progress=progress)
    interval_ms = _interval_ms(options.get("checkpoint_interval", _INTERVAL))
    return {
        **numbers,
        **words,
        "checkpoint_interval_ms": interval_ms,
        **flags,
        "progress": progress,
    }


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    """A function's signature with the options and their defaults in the place of ``**options``."""
    defaults = {
        **{name: what.default for name, what in _NUMBERS.items()},
        "checkpoint_interval": _INTERVAL,
        **{name: next(iter(known)) for name, known in _WORDS.items()},
        **_FLAGS,
        "progress": None,
    }
    signature = inspect.signature(function)
    *parameters, _ = signature.parameters.values()
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults[name],
            annotation=StoreOptions.__annotations__[name],
        )
        for name in _KNOWN
    ]
    return signature.replace(parameters=[*parameters, *options])


def decoded(numbers: Mapping[str, int]) -> dict[str, Any]:
    """The options in force, by name, from the engine's numbers."""
    return {
        **{name: numbers[name] for name in _NUMBERS},
        **{name: word_of(known, numbers[name]) for name, known in _WORDS.items()},
        "checkpoint_interval": numbers["checkpoint_interval_ms"] / 1000,
        "read_only": bool(numbers["read_only"]),
    }


def word_of(known: Mapping[str, int], number: int) -> str:
    """The word for what the engine calls ``number``."""
    return next(word for word, value in known.items() if value == number)


def number_of(name: str, value: object, known: Mapping[str, int]) -> int:
    """The engine's number for the word ``value`` of the option or argument ``name``."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be str, not {type(value).__name__}")
    if value not in known:
        raise ValueError(f"{name} must be {' or '.join(map(repr, known))}, not {value!r}")
    return known[value]


def _number(name: str, value: object, what: _Number) -> int:
    if isinstance(value, str) and what.size:
        number = bytes_of(name, value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        wanted = "int or a size such as '64MiB'" if what.size else "int"
        raise TypeError(f"{name} must be {wanted}, not {type(value).__name__}")
    if not what.least <= number <= what.most or (what.power_of_two and number.bit_count() != 1):
        kind = "a power of two from " if what.power_of_two else ""
        raise ValueError(f"{name} must be {kind}{what.least} to {what.most}, not {value!r}")
    return number


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be bool, not {type(value).__name__}")
    return value


def _interval_ms(value: object) -> int:
    if value is None:
        return 0
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"checkpoint_interval must be seconds or None, not {type(value).__name__}")
    if not 0 <= value <= _INTERVAL_MOST:
        raise ValueError(f"checkpoint_interval must be 0 to {_INTERVAL_MOST} s, not {value!r}")
    return math.ceil(value * 1000)


def bytes_of(name: str, value: str) -> int:
    """A size with a unit.  ValueError, which names what it is for: it is none."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", value.lower())
    if match is None or match[2] not in _UNITS:
        raise ValueError(
            f"{name}: {value!r} is not a size; write a number and one of B, KB, MB, GB, TB, KiB,"
            " MiB, GiB, TiB"
        )
    return math.floor(Fraction(match[1]) * _UNITS[match[2]])


def checked_path(path: str | os.PathLike[str]) -> str:
    """The path as str; TypeError, ValueError: it is none."""
    name = os.fspath(path)
    if not isinstance(name, str):
        raise TypeError(f"path must be str or os.PathLike, not {type(path).__name__}")
    if not name or "\0" in name:
        raise ValueError(f"path must not be empty or contain a NUL character: {name!r}")
    return name

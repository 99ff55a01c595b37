"""Regular expressions from clients; those that could take very long are refused.

Python's matcher tries alternatives one by one, and holds the GIL meanwhile.  So the alternatives
are counted before, from the pattern's syntax tree: alternatives are added, sequences are
multiplied, and a repeat raises its body to the power of its count.
"""

from __future__ import annotations

import importlib
import math
import re
import time
from collections.abc import Iterable
from typing import Any, TypeVar

from .errors import BadRequest

__all__ = ["found_by"]

_PATTERN_MAX = 200
_NAME_MAX = 255  # characters of a name that are matched
_STEPS_LOG2 = 24.5  # a second or two at most; ".*-jobs-.*" has 24
_SECONDS_MAX = 2.0  # for all names
_TOLD = "Pagination parameters are invalid"
_CHARACTER = ("LITERAL", "NOT_LITERAL", "ANY", "IN")
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")

# A module of the standard library without a public name.
_parser: Any = importlib.import_module("re._parser")
_Item = TypeVar("_Item")


def found_by(pattern: str, named: Iterable[tuple[str, _Item]]) -> list[_Item]:
    """The items whose names match the pattern, ignoring case.  BadRequest: it is invalid, or it, or
    all names together, could take too long."""
    compiled = _compiled(pattern)
    end = time.monotonic() + _SECONDS_MAX
    found = []
    for name, item in named:
        if compiled.search(name[:_NAME_MAX]):
            found.append(item)
        if time.monotonic() > end:
            raise BadRequest(f"{_TOLD}: the pattern takes too long for so many names; simplify it")
    return found


def _compiled(pattern: str) -> re.Pattern[str]:
    if len(pattern) > _PATTERN_MAX:
        raise BadRequest(f"{_TOLD}: a pattern has {_PATTERN_MAX} characters at most")
    try:
        tree = _parser.parse(pattern, re.IGNORECASE)
        steps = _steps(tree)
        if steps <= _STEPS_LOG2:
            return re.compile(pattern, re.IGNORECASE)
    except (re.error, ValueError, RecursionError, OverflowError) as error:
        raise BadRequest(f"{_TOLD}: no regular expression: {error}") from None
    raise BadRequest(
        f"{_TOLD}: the pattern could take very long: use fewer repeats and alternatives, none"
        " inside a repeat, and no group references; one that begins with ^ may have more"
    )


def _steps(tree: Any) -> float:
    """The logarithm of the number of steps to the base of two, as in all functions below.  A
    pattern that is not anchored at the beginning is tried at each character."""
    is_bound = (
        len(tree) > 0
        and str(tree[0][0]) == "AT"
        and str(tree[0][1]) in ("AT_BEGINNING", "AT_BEGINNING_STRING")
        and not tree.state.flags & re.MULTILINE
    )
    return _of_sequence(tree) + (0.0 if is_bound else math.log2(_NAME_MAX + 1))


def _of_sequence(tree: Any) -> float:
    return sum(_of_part(str(kind), value) for kind, value in tree)


def _of_part(kind: str, value: Any) -> float:
    if kind in _CHARACTER or kind == "AT":
        return 0.0
    if kind in _REPEATS:
        return _of_repeat(*value)
    if kind == "BRANCH":
        return _sum(_of_sequence(branch) for branch in value[1])
    if kind in ("SUBPATTERN", "ASSERT", "ASSERT_NOT"):
        return _of_sequence(value[-1])
    if kind == "ATOMIC_GROUP":
        return _of_sequence(value)
    return math.inf  # backreferences, and elements of later versions


def _of_repeat(least: int, most: int, body: Any) -> float:
    """A repeat.  For a single character the matcher knows the count at once.  A body that can be
    empty is still repeated as often as the count allows."""
    least, most = int(least), int(most)
    often = max(least, min(most, _NAME_MAX))
    is_character = len(body) == 1 and str(body[0][0]) in _CHARACTER
    return often * _of_sequence(body) + math.log2(often + 1 - (least if is_character else 0))


def _sum(each: Iterable[float]) -> float:
    known = list(each)
    most = max(known)
    return most if math.isinf(most) else most + math.log2(sum(2 ** (one - most) for one in known))

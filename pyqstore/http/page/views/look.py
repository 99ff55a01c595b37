"""What a view is made of, and pages of long lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .... import store as _store
from ...auth import Login
from ...sampler import View
from ..feed import History

__all__ = ["Look", "Page"]

_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Page:
    """A part of a list."""

    number: int
    pages: int
    first: int
    rows: int

    @classmethod
    def of(cls, asked: str, count: int, rows: int) -> Page:
        """``asked``: which, from 1; one that is not there is the nearest that is."""
        pages = max(-(-count // rows), 1)
        number = int(asked) if asked.isdecimal() and len(asked) < 10 else 1
        number = min(max(number, 1), pages)
        return cls(number, pages, (number - 1) * rows, rows)

    def of_rows(self, rows: Sequence[_Row]) -> Sequence[_Row]:
        """Those that it shows."""
        return rows[self.first : self.first + self.rows]


@dataclass(frozen=True)
class Look:
    """A store and its figures, as somebody asks for them."""

    store: _store.Store
    login: Login
    history: History
    view: View
    query: Mapping[str, str]
    last: int
    """The point of the history that the viewer has already."""

    def asked(self, name: str, otherwise: str = "") -> str:
        """What the viewer has chosen."""
        return self.query.get(name, otherwise)

    def page(self, count: int, rows: int) -> Page:
        """The page that was asked for, of a list of ``count``."""
        return Page.of(self.asked("page"), count, rows)

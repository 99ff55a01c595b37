"""The inputs of a view, and pages of long lists."""

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
        """``asked``: the page, from 1; a page that does not exist becomes the nearest one."""
        pages = max(-(-count // rows), 1)
        number = int(asked) if asked.isdecimal() and len(asked) < 10 else 1
        number = min(max(number, 1), pages)
        return cls(number, pages, (number - 1) * rows, rows)

    def of_rows(self, rows: Sequence[_Row]) -> Sequence[_Row]:
        """The rows of this page."""
        return rows[self.first : self.first + self.rows]


@dataclass(frozen=True)
class Look:
    """A request for a store and its figures."""

    store: _store.Store
    login: Login
    history: History
    view: View
    query: Mapping[str, str]
    last: int
    """The newest point of the history that the viewer already has."""

    def asked(self, name: str, otherwise: str = "") -> str:
        """A parameter of the request."""
        return self.query.get(name, otherwise)

    def page(self, count: int, rows: int) -> Page:
        """The requested page of a list of ``count`` rows."""
        return Page.of(self.asked("page"), count, rows)

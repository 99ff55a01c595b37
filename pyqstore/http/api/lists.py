"""Lists: filters, sorting, pages and columns, by RabbitMQ's query parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..errors import BadRequest, refusal
from ..patterns import found_by
from .calls import Call, Json

__all__ = ["listed"]

_PAGE_MAX = 500
_PAGE = 100
Item = dict[str, Any]


def listed(call: Call, items: Iterable[Item], *completing: Callable[[Item], Item]) -> Json | Any:
    """The answer for a list.  The functions in ``completing``, in order, add values to an item that
    take longer to find.  They are called for the items of the page; for all items if the list is
    sorted by such a value.

    BadRequest: a parameter is invalid."""
    query = call.query
    chosen = list(items)
    total = len(chosen)
    paged = "page" in query
    if paged:
        chosen = _filtered(chosen, query.get("name", ""), query.get("use_regex") == "true")
    sort, steps = query.get("sort", ""), list(completing)
    while sort and steps and not any(_has(item, sort) for item in chosen):
        step = steps.pop(0)
        chosen = [step(item) for item in chosen]
    if sort:
        reverse = query.get("sort_reverse") == "true"
        chosen.sort(key=lambda item: _order(_value(item, sort)), reverse=reverse)
    if not paged:
        return [_shown(call, item, steps) for item in chosen]
    page, size = _number(query, "page", 1), _number(query, "page_size", _PAGE)
    if page < 1 or not 1 <= size <= _PAGE_MAX:
        told = f"Invalid pagination parameters: page number {page}, page size {size}"
        return refusal(400, told, "invalid_pagination_parameters")
    pages = max(1, -(-len(chosen) // size))
    if page > pages:
        told = f"Page out of range, page: {page} page size: {size}, len: {len(chosen)}"
        return refusal(400, told, "page_out_of_range")
    shown = [_shown(call, item, steps) for item in chosen[(page - 1) * size : page * size]]
    return {
        "total_count": total,
        "item_count": len(shown),
        "filtered_count": len(chosen),
        "page": page,
        "page_size": size,
        "page_count": pages,
        "items": shown,
    }


def _number(query: Any, name: str, otherwise: int) -> int:
    try:
        return int(query.get(name, otherwise))
    except ValueError:
        raise BadRequest("Pagination parameters are invalid") from None


def _filtered(items: list[Item], name: str, use_regex: bool) -> list[Item]:
    if not name:
        return items
    if not use_regex:
        return [item for item in items if name.lower() in str(item.get("name", "")).lower()]
    return found_by(name, ((str(item.get("name", "")), item) for item in items))


def _shown(call: Call, item: Item, steps: list[Callable[[Item], Item]]) -> Item:
    columns = call.query.get("columns", "").split(",")
    for step in steps:
        if columns == [""] or not all(_has(item, column) for column in columns):
            item = step(item)
    return item if columns == [""] else _columns(item, columns)


def _columns(item: Item, names: list[str]) -> Item:
    """The chosen columns of an item; of "a.b" only b of a."""
    found: Item = {}
    for name in names:
        path = name.split(".")
        if not _has(item, name):
            continue
        at = found
        for part in path[:-1]:
            at = at.setdefault(part, {})
        at[path[-1]] = _value(item, name)
    return found


def _has(item: Item, name: str) -> bool:
    at: Any = item
    for part in name.split("."):
        if not isinstance(at, dict) or part not in at:
            return False
        at = at[part]
    return True


def _value(item: Item, name: str) -> Any:
    at: Any = item
    for part in name.split("."):
        at = at.get(part) if isinstance(at, dict) else None
    return at


def _order(value: Any) -> tuple[int, Any]:
    """The sort key of a value: numbers before text, as in Erlang; missing values last."""
    match value:
        case bool() | int() | float():
            return 0, value
        case str():
            return 1, value
        case None:
            return 3, ""
    return 2, str(value)

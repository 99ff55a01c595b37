"""What ``top`` draws of a store: two moments, and what happened between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.cells import cell_len
from rich.console import ConsoleDimensions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..control.wire import Report
from ..terminal import visible
from .shared import size

__all__ = ["SORTS", "Rates", "picture", "rates_of"]

Rates = dict[str, Any]
"""Of the store by the names of its counters, and of "queues" by name; a second."""

_COUNTERS = (
    "messages_published", "messages_confirmed", "messages_delivered", "messages_acked",
    "fdatasyncs", "bytes_journalled",
)  # fmt: skip
_OF_QUEUES = ("publish", "deliver_get", "ack")
_COLUMNS = ("ready", "unacked", "delayed", "consumers", "in/s", "out/s", "ack/s", "memory")
_DISPENSABLE = ("consumers", "memory", "delayed", "ack/s", "unacked", "out/s", "in/s")
_NAME_LEAST = 16
_GAP = 2
_ROWS_LEAST = 3
_LINES = 6  # that are no rows of queues: four of figures, the heads, what is left out


def rates_of(before: Report | None, now: Report) -> Rates | None:
    """None: there is nothing to compare with, or it was another process."""
    if before is None or before["pid"] != now["pid"]:
        return None
    seconds: float = now["monotonic_s"] - before["monotonic_s"]
    if seconds <= 0:
        return None

    def rate(old: dict[str, Any], new: dict[str, Any], name: str) -> float:
        grown: int = new[name] - old.get(name, 0)
        return max(0.0, grown / seconds)

    rates: Rates = {name: rate(before["stats"], now["stats"], name) for name in _COUNTERS}
    rates["queues"] = {
        queue: {name: rate(before["queues"].get(queue, {}), row, name) for name in _OF_QUEUES}
        for queue, row in now["queues"].items()
    }
    return rates


_Key = Callable[[str, dict[str, Any], dict[str, float]], Any]
SORTS: dict[str, _Key] = {
    "ready": lambda name, row, _: (-row["ready"], name),
    "rate": lambda name, _, rates: (-sum(rates.get(each, 0) for each in _OF_QUEUES), name),
    "name": lambda name, _row, _rates: name,
}
"""What queues may be sorted by."""


def picture(
    now: Report, rates: Rates | None, sort: str, space: ConsoleDimensions | None
) -> RenderableType:
    """As many queues as ``space`` has lines for, all of them if it is None.  Where it is narrow,
    columns are left out, and names are cut: a number never is."""
    queues: dict[str, dict[str, Any]] = now["queues"]
    of_queues: dict[str, dict[str, float]] = {} if rates is None else rates["queues"]
    names = sorted(
        queues, key=lambda name: SORTS[sort](name, queues[name], of_queues.get(name, {}))
    )
    most = len(names) if space is None else max(_ROWS_LEAST, space.height - _LINES)
    cells = [_cells(name, queues[name], of_queues.get(name)) for name in names[:most]]
    parts: list[RenderableType] = [*_head(now, rates)]
    parts.append(_table([("queue", *_COLUMNS), *cells], None if space is None else space.width))
    if len(names) > most:
        parts.append(_line(f"and {len(names) - most} more, by {sort}"))
    return Group(*parts)


def _table(rows: list[tuple[str, ...]], width: int | None) -> Table:
    """The first of ``rows`` are the heads."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    kept = list(range(1, len(widths)))
    left = widths[0]
    if width is not None:
        for index in (_COLUMNS.index(name) + 1 for name in _DISPENSABLE):
            left = width - sum(widths[each] + _GAP for each in kept)
            if left >= min(widths[0], _NAME_LEAST):
                break
            kept.remove(index)
        left = max(1, width - sum(widths[each] + _GAP for each in kept))
    made = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    made.add_column(rows[0][0], no_wrap=True)
    for index in kept:
        made.add_column(rows[0][index], justify="right", no_wrap=True, min_width=widths[index])
    for row in rows[1:]:
        name = Text(row[0])
        name.truncate(left, overflow="ellipsis")
        made.add_row(name, *(Text(row[index]) for index in kept))
    return made


def _head(now: Report, rates: Rates | None) -> list[Text]:
    stats, queues = now["stats"], now["queues"].values()
    counts = ", ".join(
        f"{sum(row[name] for row in queues)} {name}" for name in ("ready", "unacked", "delayed")
    )
    behind = stats["appended_lsn"] - stats["checkpoint_lsn"]
    latency = stats["commit_latency_us"]
    lines = [
        f"{visible(now['path'])}  process {now['pid']}"
        + ("  FAILED: an input/output error stopped it" if stats["failed"] else ""),
        f"published {_rate(rates, 'messages_published')}"
        f"  confirmed {_rate(rates, 'messages_confirmed')}"
        f"  delivered {_rate(rates, 'messages_delivered')}"
        f"  acked {_rate(rates, 'messages_acked')}",
        f"syncs {_rate(rates, 'fdatasyncs')}  commit {latency['p50']} us, p99 {latency['p99']} us"
        f"  journal {_rate(rates, 'bytes_journalled', size)}, {size(behind)} since the checkpoint",
        f"memory {size(stats['ram_bytes'])} of {size(now['memory_budget'])}"
        f"  {len(now['queues'])} queues: {counts}",
    ]
    return [_line(text) for text in lines]


def _line(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")


def _cells(name: str, row: dict[str, Any], rates: dict[str, float] | None) -> tuple[str, ...]:
    kind = " (stream)" if row["stream"] else ""
    return (
        visible(name) + kind,
        *(str(row[each]) for each in ("ready", "unacked", "delayed", "consumers")),
        *(_number(rates[each]) if rates is not None else "-" for each in _OF_QUEUES),
        size(row["ram_bytes"]),
    )


def _number(rate: float) -> str:
    return f"{rate:.1f}" if 0 < rate < 10 else f"{rate:.0f}"


def _rate(rates: Rates | None, name: str, told: Callable[[float], str] = _number) -> str:
    return "-" if rates is None else f"{told(rates[name])}/s"

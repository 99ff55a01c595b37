"""Exchanges and bindings."""

from __future__ import annotations

from typing import Any

from ....listings import ExchangeInfo
from .bound import bound
from .look import Look

__all__ = ["exchanges"]

_BINDINGS = 40  # of a page: as many as a picture can show
_EXCHANGES = 100


def exchanges(look: Look) -> dict[str, Any]:
    """The exchanges, and a page of the bindings, filtered by names.

    The default exchange, which leads to each queue by its name, has a row and no bindings."""
    wanted = look.asked("filter").casefold()
    infos = [info for info in look.store.exchanges().values() if wanted in info.name.casefold()]
    bindings = [
        each
        for each in look.store.bindings()
        if each.source
        and any(
            wanted in text.casefold() for text in (each.source, each.destination, each.routing_key)
        )
    ]
    page = look.page(len(bindings), _BINDINGS)
    return {
        "exchanges": [_exchange(look, info) for info in infos[:_EXCHANGES]],
        "bindings": [bound(each) for each in page.of_rows(bindings)],
        "matched": len(bindings),
        "page": page.number,
        "pages": page.pages,
    }


def _exchange(look: Look, info: ExchangeInfo) -> dict[str, Any]:
    rates = look.view.exchange(info.name)
    counts = look.view.stats.exchanges.get(info.name, {})
    words = (
        (info.durable, "durable"),
        (info.auto_delete, "auto-delete"),
        (info.internal, "internal"),
    )
    return {
        "name": info.name,
        "type": info.type,
        "features": ", ".join(word for holds, word in words if holds),
        "is_own": not info.name or info.name.startswith("amq."),
        "in_rate": rates.get("publish_in", 0.0),
        "out_rate": rates.get("publish_out", 0.0),
        "unroutable": counts.get("return_unroutable", 0) + counts.get("drop_unroutable", 0),
    }

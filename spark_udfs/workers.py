"""What every task of the data source does to the Python process that it runs in."""

from __future__ import annotations

import gc

_is_settled = False


def settle() -> None:
    """Take what is there now, which is modules, out of the sight of Python's collector.

    Spark collects after every task, and its workers have some 100,000 objects that live as long as
    they do: looking at them again costs a small task more than its rows.  Once for each process.
    """
    global _is_settled
    if not _is_settled:
        gc.collect()
        gc.freeze()
        _is_settled = True

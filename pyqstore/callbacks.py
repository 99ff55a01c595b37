"""What is to be called later is looked at when it is given."""

from __future__ import annotations

__all__ = ["check_callable"]


def check_callable(**given: object) -> None:
    """TypeError that names the first argument that is neither callable nor None."""
    for name, what in given.items():
        if what is not None and not callable(what):
            raise TypeError(f"{name} must be callable, not {type(what).__name__}")

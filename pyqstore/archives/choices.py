"""How an archive works."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Choices"]


@dataclass(frozen=True)
class Choices:
    """What may be chosen."""

    part_seconds: float = 5.0
    """What is durable is sent so long after, or sooner."""
    part_bytes: int = 8 << 20
    """So much is sent at once."""
    lag_bytes: int = 1 << 30
    """Of the journal that is kept for the target; with more a checkpoint gives it up."""
    base_hours: float = 24.0
    """A base is made when the last one is so old, or sooner, where the journal since is long."""
    keep_days: float | None = None
    """What only older moments need is removed, but for the newest base; None: nothing is."""
    temporary: str | None = None
    """Where a base's snapshot is made; None: beside the store."""

    def check(self) -> None:
        """ValueError names what makes no sense."""
        for name, least in (("part_seconds", 0.1), ("part_bytes", 1), ("lag_bytes", 1)):
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} must be {least} or more, not {getattr(self, name)}")
        if not self.base_hours > 0:
            raise ValueError(f"base_hours must be more than 0, not {self.base_hours}")
        if self.keep_days is not None and not self.keep_days >= 0:
            raise ValueError(f"keep_days must be 0 or more, not {self.keep_days}")

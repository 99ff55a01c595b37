"""The options of an archive."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Choices"]


@dataclass(frozen=True)
class Choices:
    """The options of an archive."""

    part_seconds: float = 5.0
    """The longest time from a commit until it is sent."""
    part_bytes: int = 8 << 20
    """The bytes of a part that is sent at once."""
    lag_bytes: int = 1 << 30
    """The most bytes of the journal that may wait for the target; a checkpoint gives up more."""
    base_hours: float = 24.0
    """The longest time between two bases; a long journal makes it shorter."""
    keep_days: float | None = None
    """Objects that only older moments need are removed, except the newest base; None: all stay."""
    temporary: str | None = None
    """Where a base's snapshot is made; None: beside the store."""

    def check(self) -> None:
        """Raises ValueError, which names an option that makes no sense."""
        for name, least in (("part_seconds", 0.1), ("part_bytes", 1), ("lag_bytes", 1)):
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} must be {least} or more, not {getattr(self, name)}")
        if not self.base_hours > 0:
            raise ValueError(f"base_hours must be more than 0, not {self.base_hours}")
        if self.keep_days is not None and not self.keep_days >= 0:
            raise ValueError(f"keep_days must be 0 or more, not {self.keep_days}")

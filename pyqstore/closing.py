"""What ``with`` closes at the end of its block, however that ends."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

__all__ = ["Closing"]


class Closing:
    """Stands behind the other bases of a class that has ``close()``."""

    __slots__ = ()

    if TYPE_CHECKING:

        def close(self) -> object: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

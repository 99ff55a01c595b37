"""Base classes of pyarrow's Flight, with the types that pyarrow does not declare."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:

    class ServerBase:
        """``FlightServerBase``."""

        port: int

        def __init__(self, location: object = None, **options: object) -> None: ...
        def __exit__(self, kind: object, value: object, traceback: object) -> None: ...

    class AuthBase:
        """``ServerAuthHandler``."""

    class MiddlewareBase:
        """``ServerMiddleware``."""

    class MiddlewareFactoryBase:
        """``ServerMiddlewareFactory``."""

else:
    from pyarrow.flight import FlightServerBase as ServerBase
    from pyarrow.flight import ServerAuthHandler as AuthBase
    from pyarrow.flight import ServerMiddleware as MiddlewareBase
    from pyarrow.flight import ServerMiddlewareFactory as MiddlewareFactoryBase

__all__ = ["AuthBase", "MiddlewareBase", "MiddlewareFactoryBase", "ServerBase"]

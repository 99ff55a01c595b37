"""Names and passwords, which a store does not ask for."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["ExternalCredentials", "PlainCredentials"]


class PlainCredentials:
    """A name and a password.  Who can open a store's directory may use the store: nothing compares
    these."""

    TYPE: ClassVar[str] = "PLAIN"

    def __init__(self, username: str, password: str, erase_on_connect: bool = False) -> None:
        self.username: str | None = username
        self.password: str | None = password
        self.erase_on_connect: bool = erase_on_connect

    def erase_credentials(self) -> None:
        """Forget both, with ``erase_on_connect``."""
        if self.erase_on_connect:
            self.username = self.password = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlainCredentials):
            return NotImplemented
        return vars(self) == vars(other)

    __hash__: ClassVar[None]  # type: ignore[assignment]


class ExternalCredentials:
    """The name is somebody else's to tell, as a certificate's."""

    TYPE: ClassVar[str] = "EXTERNAL"

    def __init__(self) -> None:
        self.erase_on_connect: bool = False

    def erase_credentials(self) -> None:
        """Nothing is to be forgotten."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExternalCredentials)

    __hash__: ClassVar[None]  # type: ignore[assignment]

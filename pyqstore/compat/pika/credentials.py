"""User names and passwords, which a store does not check."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["ExternalCredentials", "PlainCredentials"]


class PlainCredentials:
    """A user name and a password.  They are not checked: whoever can open a store's directory may
    use the store."""

    TYPE: ClassVar[str] = "PLAIN"

    def __init__(self, username: str, password: str, erase_on_connect: bool = False) -> None:
        self.username: str | None = username
        self.password: str | None = password
        self.erase_on_connect: bool = erase_on_connect

    def erase_credentials(self) -> None:
        """Clear the name and the password, if ``erase_on_connect`` is set."""
        if self.erase_on_connect:
            self.username = self.password = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlainCredentials):
            return NotImplemented
        return vars(self) == vars(other)

    __hash__: ClassVar[None]  # type: ignore[assignment]


class ExternalCredentials:
    """Credentials whose name comes from elsewhere, such as a certificate."""

    TYPE: ClassVar[str] = "EXTERNAL"

    def __init__(self) -> None:
        self.erase_on_connect: bool = False

    def erase_credentials(self) -> None:
        """Does nothing: there are no secrets."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExternalCredentials)

    __hash__: ClassVar[None]  # type: ignore[assignment]

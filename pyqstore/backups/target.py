"""Where backups are: a directory, or what obstore reaches (s3, gs, az)."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ..disk import sync

__all__ = ["Target"]

_PART_BYTES = 8 << 20  # that are sent, and read, at once


class Target:
    """Objects by name.  Every method raises OSError, which names the target and says why."""

    def __init__(self, place: str, *, create: bool = False) -> None:
        """``place``: a directory, or a URL as "s3://bucket/path", with the credentials that the
        environment holds (AWS_..., GOOGLE_..., AZURE_...).  ``create``: a directory may not be
        there yet.  ValueError: it is no such place, or obstore is not installed."""
        try:
            import obstore
            from obstore import store as stores
        except ImportError:
            raise ValueError(
                "backups need obstore, which is not installed: pip install 'pyqstore[backup]'"
            ) from None
        self._api: Any = obstore
        self.place: str = place
        self._folder: Path | None = _local(place)
        with self._errors():
            if self._folder is None:
                self._store: Any = stores.from_url(place)
            else:
                if create:
                    self._folder.mkdir(0o700, parents=True, exist_ok=True)
                if not self._folder.is_dir():
                    raise FileNotFoundError("there is no such directory")
                self._store = stores.LocalStore(self._folder)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.place!r}>"

    def listed(self, folder: str) -> dict[str, datetime]:
        """The names in a folder, and when each was written."""
        with self._errors():
            return {
                str(each["path"]).removeprefix(f"{folder}/"): each["last_modified"]
                for part in self._api.list(self._store, folder)
                for each in part
            }

    def sizes(self, folder: str) -> dict[str, int]:
        """The names in a folder, and the bytes of each."""
        with self._errors():
            return {
                str(each["path"]).removeprefix(f"{folder}/"): int(each["size"])
                for part in self._api.list(self._store, folder)
                for each in part
            }

    def put(self, name: str, parts: Iterable[bytes]) -> None:
        """All of it, durably, or nothing."""
        with self._errors():
            if self._folder is None:
                self._api.put(self._store, name, iter(parts), chunk_size=_PART_BYTES)
            else:
                _write(self._folder, name, parts)

    def parts(self, name: str) -> Iterator[bytes]:
        """The content."""
        with self._errors():
            for part in self._api.get(self._store, name).stream(min_chunk_size=_PART_BYTES):
                yield bytes(part)

    def content(self, name: str) -> memoryview:
        """All of it, for objects that are not large."""
        with self._errors():
            return memoryview(self._api.get(self._store, name).bytes())

    def remove(self, names: list[str]) -> None:
        """Objects that are not there are fine."""
        for name in names:
            try:
                with self._errors():
                    self._api.delete(self._store, name)
            except FileNotFoundError:
                continue

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:  # obstore's is one
            raise FileNotFoundError(f"{self.place}: {_line(error)}") from error
        except (OSError, self._api.exceptions.BaseError) as error:
            raise OSError(f"{self.place}: {_line(error)}") from error


def _write(folder: Path, name: str, parts: Iterable[bytes]) -> None:
    """It is on the disk before it has its name: what is there is whole.  For its owner alone, as
    the store is."""
    path = folder / name
    for each in reversed(path.relative_to(folder).parents):
        (folder / each).mkdir(0o700, exist_ok=True)
    beside = path.with_name(f".{secrets.token_hex(8)}.sending")
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(fd)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    while path != folder.parent:
        path = path.parent
        sync(path)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _local(place: str) -> Path | None:
    if "://" not in place:
        return Path(os.path.abspath(place))
    parts = urlsplit(place)
    if parts.scheme != "file":
        return None
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise ValueError(f"{place}: a directory is file:///PATH")
    return Path(unquote(parts.path))

"""A power cut for what Python writes."""

import os
import subprocess
from pathlib import Path

import pytest


class Platter:
    """What a power cut leaves below a directory: files and names as they were synced last.

    Harsher than a disk: what was written and not synced is gone, and so is a name whose directory
    was not synced.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.contents: dict[int, bytes] = {}
        self.names: dict[int, dict[str, int]] = {}
        fsync = os.fsync

        def synced(descriptor: int) -> None:
            fsync(descriptor)
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            inode = path.stat().st_ino
            if path.is_dir():
                self.names[inode] = {e.name: e.inode() for e in os.scandir(path)}
            else:
                self.contents[inode] = path.read_bytes()

        monkeypatch.setattr(os, "fsync", synced)

    def cut(self, path: Path) -> None:
        """Take away what would not be there."""
        names = self.names.get(path.stat().st_ino, {})
        for entry in list(path.iterdir()):
            if names.get(entry.name) != entry.stat().st_ino:
                subprocess.run(["rm", "-rf", str(entry)], check=True)
            elif entry.is_dir():
                self.cut(entry)
            else:
                entry.write_bytes(self.contents.get(entry.stat().st_ino, b""))

"""A listener in a process that holds Python's lock, and a client in C that waits for heartbeats."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path
from typing import Any

import pyqstore

from .native import WIRE


def while_held(folder: str, store: str, each_s: int, seconds: float) -> dict[str, Any]:
    """What the client says; the lock is held from before it begins until it must have ended."""
    with pyqstore.open(store) as opened, opened.listen("127.0.0.1:0") as listener:
        port = listener.address.rpartition(":")[2]
        command = [str(Path(folder) / WIRE), "heartbeats", port, str(each_s), str(seconds)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
            # A call by way of PyDLL keeps the lock, as one long step of Python's own would.
            ctypes.PyDLL(None).usleep(ctypes.c_uint(round((seconds + 1) * 1e6)))
            said, _ = client.communicate()
        if client.returncode:
            raise RuntimeError(f"{WIRE} heartbeats: status {client.returncode}")
        told: dict[str, Any] = json.loads(said)
        return told

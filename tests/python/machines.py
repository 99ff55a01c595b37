"""Machines of a network: network namespaces of this one, each with an address of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

_ENTER = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if libc.setns(os.open("/run/netns/{name}", os.O_RDONLY), 0x40000000) != 0:
    raise OSError(ctypes.get_errno(), "setns")
"""


@dataclass(frozen=True)
class Machine:
    """Where a server may run."""

    address: str
    planted: str
    """Code by which a process gets there."""


@contextmanager
def machines(count: int) -> Iterator[list[Machine]]:
    """Namespaces, each with a link of its own to this one; where these cannot be made, as by an
    ordinary user, addresses of loopback."""
    with ExitStack() as made:
        try:
            there = [made.enter_context(_namespace(number)) for number in range(count)]
        except (OSError, subprocess.CalledProcessError):
            there = [Machine(f"127.0.0.{number}", "") for number in range(2, 2 + count)]
        yield there


@contextmanager
def _namespace(number: int) -> Iterator[Machine]:
    # Of other tests that run at the same time there are others.
    net = os.getpid() % (1 << 14) * 4 + number
    name, link = f"pyqstore-{net}", f"pyq{net}"
    subnet = f"10.{199 + (net >> 14)}.{net >> 6 & 255}"
    near, far = (f"{subnet}.{(net & 63) * 4 + host}" for host in (1, 2))
    _ip("netns", "add", name)
    try:
        _ip("link", "add", link, "type", "veth", "peer", "name", "far", "netns", name)
        _ip("addr", "add", f"{near}/30", "dev", link)
        _ip("link", "set", link, "up")
        _ip("-n", name, "addr", "add", f"{far}/30", "dev", "far")
        _ip("-n", name, "link", "set", "far", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        yield Machine(far, _ENTER.format(name=name))
    finally:
        _ip("netns", "del", name)  # and the link with it


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)

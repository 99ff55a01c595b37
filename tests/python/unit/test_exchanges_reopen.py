"""Exchanges and their bindings after a kill, a checkpoint, an orderly close."""

from pathlib import Path

import pytest

import pyqstore

from ..support import run_python

BUILD = """
import os, signal, sys
import pyqstore

store = pyqstore.open(sys.argv[1])
channel = store.channel()
for name in ("a", "b"):
    channel.queue_declare(name, durable=True)
channel.queue_declare("t")
arguments = {"alternate-exchange": "aside"}
channel.exchange_declare("in", "direct", durable=True, arguments=arguments)
channel.exchange_declare("aside", "fanout", durable=True, internal=True)
channel.exchange_declare("by", "headers", durable=True)
channel.exchange_declare("gone", "fanout", durable=True, auto_delete=True)
channel.exchange_declare("transient", "fanout")
channel.queue_bind("a", "aside")
channel.exchange_bind("by", "in", "k", {"n": 1})
channel.exchange_bind("transient", "in", "k")
channel.exchange_bind("in", "transient", "k")
channel.queue_bind("b", "by", "", {"x-match": "any", "h": 1, "i": None})
channel.queue_bind("t", "by")
if sys.argv[2] == "checkpoint":
    store.checkpoint()
channel.exchange_bind("aside", "gone", "k")
channel.exchange_unbind("aside", "gone", "k")
channel.exchange_bind("by", "aside", "twice")
channel.exchange_bind("by", "aside", "again")
channel.exchange_unbind("by", "aside", "twice")
if sys.argv[2] == "close":
    store.close()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["kill", "checkpoint", "close"])
def test_exchanges_come_back_as_they_were(path: Path, how: str) -> None:
    run_python(BUILD, path, how)
    for _ in range(2):
        with pyqstore.open(path) as store, store.channel() as channel:
            exchanges = {n: e for n, e in store.exchanges().items() if n[:3] not in ("", "amq")}
            assert exchanges == {
                "aside": ("aside", "fanout", True, False, True, {}),
                "by": ("by", "headers", True, False, False, {}),
                "in": ("in", "direct", True, False, False, {"alternate-exchange": "aside"}),
            }
            assert [tuple(binding) for binding in store.bindings()] == [
                ("aside", "a", "", {}, False),
                ("aside", "by", "again", {}, True),
                ("by", "b", "", {"x-match": "any", "h": 1, "i": None}, False),
                ("in", "by", "k", {"n": 1}, True),
            ]
            for headers, expected in (({"h": 1}, "b"), ({"i": 0}, "b"), ({"h": 2}, "")):
                channel.basic_publish("in", "k", b"", pyqstore.Properties(headers=headers))
                got = "".join(n for n in "ab" if channel.basic_get(n, auto_ack=True))
                assert got == expected
            channel.basic_publish("in", "other", b"", pyqstore.Properties(headers={"h": 1}))
            assert "".join(n for n in "ab" if channel.basic_get(n, auto_ack=True)) == "ab"
            if how == "checkpoint":
                store.checkpoint()

"""PerfTest's own page about `pyqstore serve` and RabbitMQ: rates and latencies, each second.

    python benchmarks/perftest_page.py FILE.html [--directory DIR] [--seconds S]

One producer, 1000 unconfirmed, persistent messages of 100 B, without a consumer and with one: one
after the other, on each server.  The page has PerfTest's scripts in it and loads nothing.  Needs
what `pyqstore bench wire` needs.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyqstore.bench.rivals import jars, java_client
from pyqstore.bench.wire import perftest, sides
from pyqstore.bench.wire.sides import CLASSIC_V1, QUORUM, SERVE, Side

RUNNER = "com.rabbitmq.perf.PerfTestMulti"
# PerfTest takes no numbers as arguments of queues here: RabbitMQ's classic queues are its default.
QUEUES: dict[str, dict[str, str]] = {SERVE: {}, CLASSIC_V1: {}, QUORUM: {"x-queue-type": "quorum"}}
LOADS = {0: "one producer", 1: "one producer and one consumer"}
SCRIPTS = ("lib/jquery.min.js", "lib/jquery.flot.min.js", "perf.js")
CHART = """<h3>{name}</h3>
<div class="chart" data-type="time" data-latency="true" data-x-axis="time (s)"
 data-y-axis="rate (msg/s)" data-y-axis2="latency (μs)" data-scenario="{name}"></div>"""
PAGE = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>{title}</title><style>{style}</style>{scripts}
<script>$(document).ready(function() {{ render_graphs({data}); }});</script></head>
<body><h1>{title}</h1>{charts}</body></html>
"""


def scenarios(running: Sequence[Side], seconds: int) -> list[dict[str, Any]]:
    """What PerfTest is to do, one after the other."""
    return [
        {
            "name": f"{side.name}, {load}",
            "type": "simple",
            "uri": side.uri,
            "interval": 1000,
            "params": [
                {
                    "time-limit": seconds,
                    "producer-count": 1,
                    "consumer-count": consumers,
                    "confirm": perftest.OUTSTANDING,
                    "flags": ["persistent"],
                    "min-msg-size": perftest.BODY_BYTES,
                    "consumer-prefetch": perftest.PREFETCH,
                    "auto-delete": False,
                    "queue-names": [f"{side.name}.{consumers}"],
                    "queue-arguments": QUEUES[side.name],
                }
            ],
        }
        for consumers, load in LOADS.items()
        for side in running
        if side.name in QUEUES
    ]


def run(wanted: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    """What PerfTest found, by the scenario's name."""
    asked, found = folder / "asked.js", folder / "found.js"
    asked.write_text(json.dumps(wanted), encoding="utf-8")
    command = [*java_client.java(jars.PERFTEST_POM), RUNNER, str(asked), str(found)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if not found.is_file():
        raise SystemExit(f"PerfTest failed:\n{done.stdout}{done.stderr}")
    told: dict[str, Any] = json.loads(found.read_text(encoding="utf-8"))
    return told


def page(results: dict[str, Any], title: str) -> str:
    """One file with the scripts and styles of PerfTest's jar in it."""
    (jar,) = jars.folder(jars.PERFTEST_POM).glob("perf-test-*.jar")
    with zipfile.ZipFile(jar) as packed:
        style = packed.read("static/perf.css").decode()
        texts = [packed.read(f"static/{name}").decode() for name in SCRIPTS]
    return PAGE.format(
        title=html.escape(title),
        style=style,
        scripts="".join(f"<script>{text}</script>" for text in texts),
        data=re.sub("</", r"<\\/", json.dumps(results)),
        charts="\n".join(CHART.format(name=html.escape(name)) for name in results),
    )


def main() -> None:
    """All servers, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--directory", type=Path, default=Path())
    parser.add_argument("--seconds", type=int, default=15)
    given = parser.parse_args()
    jars.fetch(jars.PERFTEST_POM)
    with tempfile.TemporaryDirectory(prefix="perftest-", dir=given.directory) as own:
        folder = Path(own).resolve()
        with sides.started(folder, lambda *_: None) as running:
            results = run(scenarios(running.queues, given.seconds), folder)
    title = "PerfTest: pyqstore serve beside RabbitMQ"
    given.file.write_text(page(results, title), encoding="utf-8")


if __name__ == "__main__":
    main()

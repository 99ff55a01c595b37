"""What README has a newcomer do, with an installed pyqstore and pika, away from the source tree:
the quickstart, a server that is looked at over HTTP, and a worker of pika's in another process."""

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
MINUTES_MAX = 5
PACKAGES = {"pyqstore", "pyspark_pyqstore", "spark_udfs"}
SERVE = r"^pyqstore (serve .*)$"


def blocks(language: str) -> list[str]:
    text = (TREE / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    return [block for name, block in found if name == language]


def python(block: str) -> str:
    """Run a block as a program of its own; ``-P``: not with what lies in its directory."""
    program = [sys.executable, "-P", "-c", block]
    return subprocess.run(
        program, check=True, text=True, stdout=subprocess.PIPE, timeout=120
    ).stdout


def check_place() -> None:
    place = python("import pyqstore; print(pyqstore.__file__)").strip()
    assert not Path(place).is_relative_to(TREE / "pyqstore"), place
    print(f"pyqstore is {place}")
    # Nothing of the benchmarks that needs servers or Java is in the wheel.
    files = python("from importlib.metadata import files; print(*files('pyqstore'), sep='\\n')")
    folders = {file.split("/")[0] for file in files.split() if not file.startswith("..")}
    assert "pyqstore/bench/fsync.py" in files
    assert ".java" not in files
    assert {name for name in folders if ".dist-info" not in name} == PACKAGES, folders


def ports(server: "subprocess.Popen[str]") -> dict[str, int]:
    """Where it accepts, by protocol: it prints a line for each."""
    assert server.stdout is not None
    found: dict[str, int] = {}
    while not {"amqp", "http"} <= found.keys():
        line = server.stdout.readline()
        said = re.fullmatch(r"(\w+): accepting at (?:http://)?127\.0\.0\.1:(\d+)/?\n", line)
        assert said, line
        found[said[1]] = int(said[2])
    return found


def try_worker(worker: str, port: int) -> None:
    said = python(worker.replace("5672", str(port)))
    assert '{"to": "eve"}' in said, said


def fetch(port: int, path: str) -> str:
    """As guest, whom the server asks for."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read(), "utf-8")


def try_looking(port: int) -> None:
    assert [queue["name"] for queue in json.loads(fetch(port, "/api/queues"))] == ["jobs"]
    assert "# TYPE " in fetch(port, "/metrics")
    files = re.findall(r"page/static/[\w.]+", fetch(port, "/"))
    assert files
    for file in files:
        assert fetch(port, f"/{file}"), file  # the page's files are in the wheel


def main() -> None:
    begun = time.monotonic()
    quickstart = next(block for block in blocks("python") if "json" in block)
    worker = next(block for block in blocks("python") if "import pika" in block)
    command = re.search(SERVE, "".join(blocks("")), re.M)
    assert command
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        check_place()
        assert python(quickstart) == "{'to': 'ann'}\n0 ready\n"
        serve = re.sub(r":\d+\b", ":0", command[1]).split()
        program = [sys.executable, "-P", "-m", "pyqstore", *serve]
        with subprocess.Popen(program, text=True, stdout=subprocess.PIPE) as server:
            try:
                found = ports(server)
                try_worker(worker, found["amqp"])
                try_looking(found["http"])
            finally:
                server.terminate()
        assert server.returncode == 0, server.returncode
        os.chdir(TREE)
    seconds = time.monotonic() - begun
    assert seconds < 60 * MINUTES_MAX, seconds
    print(f"what README has a newcomer do took {seconds:.0f} s")


if __name__ == "__main__":
    main()

"""The examples run, twice, and do what they say."""

import importlib.util
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pika

from ..serving import served

EXAMPLES = Path(__file__).parents[3] / "examples"


def run(name: str, path: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_examples_are_in_the_readme_and_tested_here() -> None:
    names = {path.name for path in EXAMPLES.glob("*.py")}
    assert names == {"worker.py", "web.py", "frames.py", "moving_from_pika.py"}
    readme = (EXAMPLES / "README.md").read_text()
    assert all(f"`{name}`" in readme for name in names)


def test_worker(path: Path) -> None:
    for _ in range(2):
        lines = run("worker.py", path).splitlines()
        assert sorted(lines[:-1]) == [f"order {number}: tea" for number in (1, 2, 3, 4, 6)]
        assert lines[-1] == (
            "set aside: {'id': 5, 'item': 'tea'},"
            " ConnectionError: the shop does not answer for order 5"
        )


def test_frames(path: Path) -> None:
    for _ in range(2):
        lines = run("frames.py", path).splitlines()
        assert lines[0] == "10000 rows are durable"
        assert [line.split()[0] for line in lines[1:4]] == ["eu.rome"] * 3
        assert sum(int(line.split()[2]) for line in lines[1:4]) == 5000
        assert lines[4:] == ["5000 rows in polars", "0 are left"]


def test_moving_from_pika(path: Path) -> None:
    for _ in range(2):
        assert run("moving_from_pika.py", path) == "".join(
            f"web.error error {number}\n" for number in range(3)
        )


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_web(path: Path) -> None:
    from starlette.testclient import TestClient

    web = load("web")
    with TestClient(web.make_app(path)) as client:
        for name in ("ann", "bob"):
            answer = client.post("/mails", content=json.dumps({"to": name}))
            assert (answer.status_code, answer.json()) == (202, {"accepted": name})
        for wrong in ("{", "5", "{}"):
            assert client.post("/mails", content=wrong).status_code == 400
        deadline = time.monotonic() + 60
        while (status := client.get("/status").json())["sent"] != ["ann", "bob"]:
            assert time.monotonic() < deadline, status
            time.sleep(0.02)
    with TestClient(web.make_app(path)) as client:
        assert client.get("/status").json() == {"waiting": 0, "sent": []}


def test_what_runs_in_kubernetes_is_what_the_commands_take(tmp_path: Path) -> None:
    """Both containers' commands, on a directory of ours: the second start finds the user."""
    manifest = (EXAMPLES / "kubernetes/pyqstore.yaml").read_text()
    (tmp_path / "password").write_text("secret\n")
    (shell,) = re.findall(r"- -ec\n +- \|\n(.*?)\n +volumeMounts", manifest, re.S)
    for place, own in (("/var/lib", tmp_path), ("/run/secrets/pyqstore", tmp_path)):
        assert place in shell
        shell = shell.replace(place, str(own))
    shell = shell.replace("pyqstore user", f"{sys.executable} -m pyqstore user")
    (tmp_path / "pyqstore").mkdir()
    for _ in range(2):
        subprocess.run(["sh", "-ec", shell], check=True, timeout=120)
    (found,) = re.findall(r"args: (\[.*\])", manifest)
    name, directory, *options = json.loads(found)
    assert (name, directory) == ("serve", "/var/lib/pyqstore/jobs.qs")
    options = [re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", each) for each in options]
    with served(tmp_path / "pyqstore/jobs.qs", *options) as owner:
        address = owner.addresses()["amqp"]
        parameters = pika.URLParameters(f"amqp://app:secret@{address}/%2F")
        pika.BlockingConnection(parameters).close()
        assert owner.end()[0] == 0

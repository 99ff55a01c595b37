"""What the page's server answers without a browser: headers, refusals, and bounds."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

import pyqstore
from pyqstore.cli import main
from pyqstore.http.page import feed

from ..documents import blocks, run
from ..support import publish, wait_until


@pytest.fixture
def client(url: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=url, auth=("guest", "guest"), timeout=30) as client:
        yield client


def token(client: httpx2.Client) -> dict[str, str]:
    return {"x-page-token": client.get("/page/session").json()["token"]}


def first_event(client: httpx2.Client, **query: str) -> tuple[str, dict[str, Any]]:
    """Its name and its data."""
    with client.stream("GET", "/page/live", params=query) as answer:
        assert answer.status_code == 200, answer.read()
        name = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            if line.startswith("data: "):
                return name, json.loads(line.removeprefix("data: "))
    raise AssertionError("no event")


def test_page_has_a_policy_that_allows_nothing_but_its_own_files(client: httpx2.Client) -> None:
    for path in ("/", "/page/static/app.js", "/page/session", "/page/peek?queue=none"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
    index = client.get("/").text
    assert "<style" not in index
    assert " style=" not in index
    assert "<script>" not in index
    assert "http" not in index.replace("http-equiv", "")


def test_page_files_have_tags_and_nothing_else_is_served(client: httpx2.Client) -> None:
    tag = client.get("/page/static/style.css").headers["etag"]
    again = client.get("/page/static/style.css", headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    for path in ("/page/static/", "/page/static/../__init__.py", "/page/static/%2e%2e/live.py"):
        assert client.get(path).status_code == 404


def test_page_acts_only_for_who_has_its_token(
    client: httpx2.Client, store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q")
    publish(channel, "q", b"kept")
    purge = {"queue": "q"}
    for headers in ({}, {"x-page-token": ""}, {"x-page-token": "0" * 64}, {"x-page-token": "é"}):
        raw = [(name, value.encode()) for name, value in headers.items()]
        answer = client.post("/page/action/purge", json=purge, headers=raw)
        assert answer.status_code == 403
        assert "reload" in answer.json()["error"]
    foreign = {**token(client), "origin": "http://elsewhere.example"}
    assert client.post("/page/action/purge", json=purge, headers=foreign).status_code == 403
    assert client.get("/page/action/purge", headers=token(client)).status_code == 405
    assert store.queue_status("q").messages_ready == 1
    assert client.post("/page/action/purge", json=purge, headers=token(client)).status_code == 200
    assert store.queue_status("q").messages_ready == 0


def test_page_of_a_process_is_served_as_its_document_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("docs/PAGE.md")
    run(block.replace("serve_page()", "serve_page(0)"), {"pyqstore": pyqstore})
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")


def test_page_lets_nobody_in_without_a_password(url: str) -> None:
    for path in ("/", "/page/session", "/page/live?view=overview", "/page/peek?queue=q"):
        assert httpx2.get(url.rstrip("/") + path).status_code == 401


@pytest.mark.parametrize(
    "given", [b"", b"[]", b"{", b"\xff", b'{"queue": 1}', b'{"vhost": 1}', b'{"limit": -1}']
)
def test_page_action_tells_what_is_wrong_with_a_malformed_request(
    client: httpx2.Client, given: bytes
) -> None:
    answer = client.post("/page/action/move", content=given, headers=token(client))
    assert 400 <= answer.status_code < 500
    assert answer.json()["error"]


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ('{"nope": 1}', "no property 'nope'"),
        ('{"headers": {"a": 1e400}}', "1e400"),
        ('{"headers": {"a": NaN}}', "NaN"),
    ],
)
def test_page_publish_tells_which_property_is_none(
    client: httpx2.Client, properties: str, told: str
) -> None:
    given = {"exchange": "", "routing_key": "q", "body": "x", "properties": properties}
    answer = client.post("/page/action/publish", json=given, headers=token(client))
    assert answer.status_code == 400
    assert told in answer.json()["error"]


def test_page_unknown_views_actions_vhosts_and_queues_are_not_found(client: httpx2.Client) -> None:
    assert client.get("/page/live?view=nothing").status_code == 404
    assert client.get("/page/live?view=overview&vhost=other").status_code == 404
    assert client.get("/page/peek?queue=nothing").status_code == 404
    assert client.get("/page/peek?queue=q&limit=0").status_code == 400
    assert client.get("/page/peek?queue=q&start=-1").status_code == 400
    answer = client.post("/page/action/nothing", json={}, headers=token(client))
    assert answer.status_code == 404
    name, told = first_event(client, view="queues", sort="nothing")
    assert (name, told) == ("trouble", {"error": "queues are not sorted by 'nothing'"})


def test_page_user_may_do_what_its_permissions_allow(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    for name in ("mine.1", "theirs.1"):
        channel.queue_declare(name)
        publish(channel, name, b"kept")
    for arguments in (("add", "--tag", "management"), ("permit",)):
        values = ["pass"] if arguments[0] == "add" else ["^mine"] * 3
        command = ["user", arguments[0], store.directory, "ann", *values, *arguments[1:]]
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output
    with (
        store.serve_page(0) as page,
        httpx2.Client(base_url=page.url, auth=("ann", "pass"), timeout=30) as client,
    ):
        headers = token(client)

        def act(name: str, **given: str) -> int:
            return client.post(f"/page/action/{name}", json=given, headers=headers).status_code

        assert act("purge", queue="mine.1") == 200
        assert act("purge", queue="theirs.1") == 403
        assert act("delete_queue", queue="theirs.1") == 403
        assert act("declare_queue", queue="theirs.2") == 403
        assert act("publish", routing_key="theirs.1", body="x") == 403  # by the default exchange
        assert act("move", queue="mine.1", destination="theirs.1") == 403
        assert act("checkpoint") == 403
        assert client.get("/page/peek?queue=theirs.1").status_code == 403
        assert client.get("/page/peek?queue=mine.1").status_code == 200
    assert store.queue_status("theirs.1").messages_ready == 1


def test_page_streams_are_bounded_and_end_with_the_server(
    store: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_VIEWERS_MAX", 3)
    ended: list[str] = []
    opened = threading.Semaphore(0)

    def look(client: httpx2.Client) -> None:
        with client.stream("GET", "/page/live?view=overview") as answer:
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    opened.release()
        ended.append("in order")

    with (
        store.serve_page(0) as page,
        httpx2.Client(base_url=page.url, auth=("guest", "guest"), timeout=60) as client,
    ):
        threads = [threading.Thread(target=look, args=(client,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert opened.acquire(timeout=60)
        answer = client.get("/page/live?view=overview")
        assert answer.status_code == 503
        assert "close some" in answer.json()["error"]
        page.close()
        for thread in threads:
            thread.join(60)
    assert ended == ["in order"] * 3


def test_page_samples_only_while_somebody_looks(
    client: httpx2.Client, store: pyqstore.Store
) -> None:
    def tasks() -> list[str]:
        return [each.name for each in threading.enumerate() if each.name == "pyqstore-sampler"]

    assert tasks() == []
    assert client.get("/").status_code == 200
    assert tasks() == []
    _, told = first_event(client, view="overview")
    assert told["begins"]
    assert len(told["points"]) == 1
    wait_until(lambda: len(first_event(client, view="overview")[1]["points"]) == 1)

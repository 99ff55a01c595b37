"""``pyqstore definitions import``: what another server had, declared in a store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pyqstore

ARGUMENTS = {"x-max-length": 5, "x-dead-letter-exchange": "ex", "x-overflow": "reject-publish"}
EXCHANGE = {
    "name": "ex",
    "vhost": "/",
    "type": "headers",
    "durable": True,
    "auto_delete": False,
    "internal": False,
    "arguments": {"alternate-exchange": "amq.fanout"},
}
QUEUE = {"name": "q", "vhost": "/", "durable": True, "auto_delete": False, "arguments": ARGUMENTS}
BINDING = {
    "source": "ex",
    "vhost": "/",
    "destination": "q",
    "destination_type": "queue",
    "routing_key": "k",
    "arguments": {"x-match": "any", "n": 7, "list": [1, True, {"a": "é"}]},
}
ALL = {
    "rabbit_version": "3.10.8",
    "vhosts": [{"name": "/"}, {"name": "other"}],
    "exchanges": [EXCHANGE],
    "queues": [QUEUE, {**QUEUE, "name": "transient", "durable": False, "arguments": {}}],
    "bindings": [
        BINDING,
        {**BINDING, "source": "amq.topic", "destination": "ex", "destination_type": "exchange"},
    ],
}


def imported(store: Path, document: Any, *more: str) -> subprocess.CompletedProcess[str]:
    file = store.parent / "definitions.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return subprocess.run(
        [sys.executable, "-m", "pyqstore", "definitions", "import", store, file, *more],
        capture_output=True,
        text=True,
        timeout=300,
    )


def topology(path: Path) -> tuple[list[str], dict[str, Any], list[Any]]:
    with pyqstore.open(path) as store:
        return store.queues(), store.exchanges(), store.bindings()


def test_exchanges_queues_and_bindings_are_there(path: Path) -> None:
    for _ in range(2):  # once more changes nothing
        ended = imported(path, ALL)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout == "1 exchanges, 2 queues, 2 bindings\n"
    with pyqstore.open(path) as store:
        # A transient queue is gone.
        assert store.queues() == ["q"]
        known = store.exchanges()["ex"]
        assert known[1:5] == ("headers", True, False, False)
        assert known.arguments == {"alternate-exchange": "amq.fanout"}
        bindings = [each for each in store.bindings() if each.source]
        assert [(each.source, each.destination) for each in bindings] == [
            ("amq.topic", "ex"),
            ("ex", "q"),
        ]
        assert bindings[1].arguments == BINDING["arguments"]
        with store.channel() as channel:
            channel.queue_declare("q", durable=True, arguments=ARGUMENTS)


def test_a_virtual_host_is_chosen_and_entries_without_one_are_of_it(path: Path) -> None:
    bare = {key: value for key, value in QUEUE.items() if key != "vhost"}
    ended = imported(
        path,
        {"queues": [{**bare, "name": "bare"}, {**QUEUE, "vhost": "other"}, {**QUEUE, "name": "x"}]},
        "--vhost=other",
    )
    assert (
        ended.stdout == "0 exchanges, 2 queues, 0 bindings; 1 of other virtual hosts passed over\n"
    )
    assert topology(path)[0] == ["bare", "q"]


def test_what_has_no_meaning_here_is_told(path: Path) -> None:
    policy = {"vhost": "/", "name": "ha\x1b", "pattern": ".*", "definition": {"ha-mode": "all"}}
    odd = {**QUEUE, "arguments": {"x-odd": 1}}
    ended = imported(path, {"queues": [odd], "policies": [policy, {**policy, "vhost": "other"}]})
    assert ended.returncode == 0
    lines = ended.stderr.splitlines()
    assert len(lines) == 2
    assert "policies[0] ('ha\\x1b') is passed over: there are no policies" in lines[0]
    assert "queues[0]: queue 'q': the argument 'x-odd' means nothing here" in lines[1]


WRONG: dict[str, Any] = {
    "expected a JSON object": [],
    "no exchanges, queues or bindings of vhost '/'": {"queues": []},
    "queues: expected a list, not an object": {"queues": {}},
    "queues[1]: expected an object, not text": {"queues": [QUEUE, "q"]},
    "queues[0]: queue None: a name is text": {"queues": [{"durable": True}]},
    "queues[0]: durable must be true or false, not 'yes'": {
        "queues": [{**QUEUE, "durable": "yes"}]
    },
    "queues[0]: arguments must be an object, not 'x'": {"queues": [{**QUEUE, "arguments": "x"}]},
    "no UTF-8": {"queues": [{**QUEUE, "name": "\ud800"}]},
    "queues[1]: PRECONDITION_FAILED - inequivalent arg 'durable'": {
        "queues": [QUEUE, {**QUEUE, "durable": False}]
    },
    "queues[1]: PRECONDITION_FAILED - invalid arg 'x-max-length'": {
        "queues": [QUEUE, {**QUEUE, "name": "p", "arguments": {"x-max-length": -1}}]
    },
    "queues[0]: PRECONDITION_FAILED": {
        "queues": [{**QUEUE, "arguments": {"x-queue-type": "quorum"}}]
    },
    "queues[0]: arguments['x-odd']: ": {"queues": [{**QUEUE, "arguments": {"x-odd": 2**70}}]},
    "exchanges[1]: COMMAND_INVALID - unknown exchange type 'odd'": {
        "exchanges": [EXCHANGE, {**EXCHANGE, "name": "e", "type": "odd"}]
    },
    "exchanges[0]: type must be text, not None": {"exchanges": [{"name": "ex"}]},
    "exchanges[0]: ACCESS_REFUSED": {"exchanges": [{**EXCHANGE, "name": "amq.mine"}]},
    "bindings[0]: NOT_FOUND - no queue 'q'": {"exchanges": [EXCHANGE], "bindings": [BINDING]},
    "bindings[0]: NOT_FOUND - no exchange 'ex'": {"queues": [QUEUE], "bindings": [BINDING]},
    "bindings[0]: destination_type must be 'queue' or 'exchange', not 'topic'": {
        "bindings": [{**BINDING, "destination_type": "topic"}]
    },
    "bindings[0]: source '': a name is text": {"bindings": [{**BINDING, "source": ""}]},
    "nested too deeply": '{"queues":' + "[" * 100_000,
    "is there twice in one object": '{"queues": [], "queues": []}',
    "Expecting value": '{"queues": ',
}


@pytest.mark.parametrize("said", WRONG)
def test_what_cannot_be_declared_declares_nothing_and_is_named(path: Path, said: str) -> None:
    with pyqstore.open(path) as store:
        store.queue("kept").put(b"x")
    before = topology(path)
    ended = imported(path, WRONG[said])
    assert ended.returncode == 3
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith(f"pyqstore: {path.parent}/definitions.json: ")
    assert said in ended.stderr
    assert topology(path) == before


def test_what_differs_from_what_is_there_declares_nothing(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
    before = topology(path)
    ended = imported(path, ALL)
    assert ended.returncode == 3
    assert "queues[0]: PRECONDITION_FAILED - inequivalent arg 'x-" in ended.stderr
    assert topology(path) == before


def test_bindings_may_be_of_what_is_there_already(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.exchange_declare("ex", "headers", durable=True)
    assert imported(path, {"bindings": [BINDING]}).returncode == 0
    assert ("ex", "q") in [(each.source, each.destination) for each in topology(path)[2]]


def test_a_store_that_is_open_elsewhere_gets_them_from_its_owner(path: Path) -> None:
    with pyqstore.open(path) as store:
        ended = imported(path, ALL)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert store.queues() == ["q", "transient"]
        wrong = imported(path, {"queues": [{**QUEUE, "durable": False}]})
        assert wrong.returncode == 3
        assert "definitions.json: queues[0]: PRECONDITION_FAILED" in wrong.stderr
    with pyqstore.open(path, control=False) as store:
        ended = imported(path, {"queues": [{**QUEUE, "name": "more"}]})
        assert ended.returncode == 3
        assert "does not listen for tools" in ended.stderr
        assert store.queues() == ["q"]


def exported(store: Path, file: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pyqstore", "definitions", "export", store, file, *more],
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_exported_definitions_make_the_same_store_elsewhere(path: Path) -> None:
    assert imported(path, ALL).returncode == 0
    file = path.parent / "out.json"
    with pyqstore.open(path) as store, store.connection() as connection:
        connection.channel().queue_declare("mine", exclusive=True)
        assert exported(path, file).stdout == "1 exchanges, 1 queues, 2 bindings\n"
    document = json.loads(file.read_text())
    assert document["vhosts"] == [{"name": "/"}]
    assert document["queues"] == [QUEUE]
    assert document["exchanges"] == [EXCHANGE]
    assert sorted(document["bindings"], key=lambda each: str(each["source"])) == [
        {**BINDING, "source": "amq.topic", "destination": "ex", "destination_type": "exchange"},
        BINDING,
    ]
    assert imported(path.parent / "other", document).returncode == 0
    assert topology(path.parent / "other") == topology(path)
    assert "--force replaces it" in exported(path, file).stderr
    numbers = json.loads(exported(path, file, "--force", "--json").stdout)
    assert numbers == {"exchanges": 1, "queues": 1, "bindings": 2}
    again = exported(path, Path("-"), "--vhost", "jobs")
    assert {each["vhost"] for each in json.loads(again.stdout)["queues"]} == {"jobs"}
    assert json.loads(file.read_text()) == document

"""The synchronous and the asynchronous face have the same verbs with the same arguments."""

import inspect
from typing import Any

import pytest

import pyqstore
import pyqstore.session
from pyqstore import _core, aio

CLASSES = (
    "Channel",
    "Connection",
    "Message",
    "Messages",
    "Queue",
    "Receipt",
    "Store",
    "Stream",
    "StreamConsumer",
    "Transaction",
)
OF_SESSIONS = ("Connection", "Consumer", "Message", "Producer", "Session")
# What one face alone has, and why.
SYNCHRONOUS_ALONE = {
    ("Channel", "threadsafe"),  # a loop has one thread: call_soon_threadsafe is asyncio's own
    ("Messages", "close"),  # an asynchronous iterator is closed by aclose()
}
ASYNCHRONOUS_ALONE = {
    ("Messages", "aclose"),
    ("Receipt", "of"),  # wraps a synchronous one
}
# Arguments that go by another name: a worker of asyncio has tasks.
RENAMED = {("Queue", "work", "threads"): "tasks"}
# Types that differ by more than where they stand.
OTHER_TYPES = {
    ("Queue", "work", "stop"),  # threading.Event, asyncio.Event
    ("Transaction", "commit_offsets", "consumer"),  # a consumer of the same face
}


def verbs(owner: type) -> dict[str, Any]:
    return {name: verb for name, verb in inspect.getmembers(owner) if not name.startswith("_")}


@pytest.mark.parametrize("name", OF_SESSIONS)
def test_sessions_of_both_faces_have_the_same_verbs_and_arguments(name: str) -> None:
    synchronous, asynchronous = (verbs(getattr(face.session, name)) for face in (pyqstore, aio))
    assert synchronous.keys() == asynchronous.keys()
    for verb, one in synchronous.items():
        if callable(one):
            ours, theirs = (inspect.signature(each) for each in (one, asynchronous[verb]))
            assert ours.parameters == theirs.parameters, verb
        else:
            assert isinstance(asynchronous[verb], type(one)), verb


def test_connecting_takes_the_same_arguments() -> None:
    ours, theirs = (
        inspect.signature(face.session.connect).parameters.values() for face in (pyqstore, aio)
    )
    assert [(each.name, each.kind, each.default) for each in ours] == [
        (each.name, each.kind, each.default) for each in theirs
    ]


@pytest.mark.parametrize("name", CLASSES)
def test_both_faces_have_the_same_verbs(name: str) -> None:
    synchronous, asynchronous = (verbs(getattr(face, name)) for face in (pyqstore, aio))
    alone = {(name, verb) for verb in synchronous.keys() - asynchronous.keys()}
    assert alone == {entry for entry in SYNCHRONOUS_ALONE if entry[0] == name}
    alone = {(name, verb) for verb in asynchronous.keys() - synchronous.keys()}
    assert alone == {entry for entry in ASYNCHRONOUS_ALONE if entry[0] == name}


@pytest.mark.parametrize("name", CLASSES)
def test_both_faces_take_the_same_arguments(name: str) -> None:
    synchronous, asynchronous = (verbs(getattr(face, name)) for face in (pyqstore, aio))
    compared = 0
    for verb in synchronous.keys() & asynchronous.keys():
        pair = synchronous[verb], asynchronous[verb]
        assert callable(pair[0]) == callable(pair[1]), verb
        if not callable(pair[0]):
            continue
        ours, theirs = (inspect.signature(each).parameters for each in pair)
        expected = [
            (RENAMED.get((name, verb, each.name), each.name), each.kind, each.default)
            for each in ours.values()
        ]
        assert [(each.name, each.kind, each.default) for each in theirs.values()] == expected, verb
        for one, other in zip(ours.values(), theirs.values(), strict=True):
            typed = inspect.Parameter.empty not in (one.annotation, other.annotation)
            if typed and (name, verb, one.name) not in OTHER_TYPES:  # compiled verbs have no types
                assert one.annotation == other.annotation, f"{verb}({one.name})"
        compared += 1
    assert compared or name in {"Messages", "Receipt"}


def test_a_verb_of_asyncio_is_described_as_the_one_it_awaits_and_with_what_differs() -> None:
    assert inspect.getdoc(aio.Store.sync) == inspect.getdoc(pyqstore.Store.sync)
    described = str(inspect.getdoc(pyqstore.Store.snapshot))
    longer = str(inspect.getdoc(aio.Store.snapshot))
    assert longer.startswith(described)
    assert "cancelled" in longer.removeprefix(described)
    assert inspect.iscoroutinefunction(aio.Store.snapshot)


def test_a_verb_of_asyncio_is_annotated_with_the_class_that_it_returns() -> None:
    for owner, verb, kind in (
        (aio.Store, "stream", aio.Stream),
        (aio.session.Session, "subscribe", aio.session.Consumer),
        (aio.session.Session, "producer", aio.session.Producer),
    ):
        assert inspect.signature(getattr(owner, verb)).return_annotation is kind


def test_opening_takes_the_same_arguments() -> None:
    assert inspect.signature(pyqstore.open).parameters == inspect.signature(aio.open).parameters


@pytest.mark.parametrize("entry", sorted(RENAMED))
def test_what_is_renamed_is_there(entry: tuple[str, str, str]) -> None:
    owner, verb, argument = entry
    assert argument in inspect.signature(getattr(getattr(pyqstore, owner), verb)).parameters


HANDLES = ("Channel", "Connection", "Message", "ReturnedMessage", "Store")


@pytest.mark.parametrize("name", HANDLES)
def test_a_verb_stands_in_cython_or_in_python_but_not_in_both(name: str) -> None:
    handle, face = getattr(_core, name), getattr(pyqstore, name)
    in_cython = {verb for verb in dir(handle) if not verb.startswith("_")}
    in_python = {
        verb
        for owner in face.__mro__
        if not owner.__module__.startswith("pyqstore._core")
        for verb in vars(owner)
        if not verb.startswith("_")
    }
    assert in_cython & in_python == set()
    assert in_cython | in_python == set(verbs(face))

"""Public classes of pyqstore.compat.pika beside pika's own, by inspection: every public name is
there, and its parameters have pika's names, order and kinds."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import pyqstore.compat.pika as compat
from pyqstore.compat.pika.adapters import blocking_connection

real = pytest.importorskip("pika")

CLASSES = (
    (blocking_connection.BlockingConnection, real.BlockingConnection),
    (blocking_connection.BlockingChannel, real.adapters.blocking_connection.BlockingChannel),
    (blocking_connection.ReturnedMessage, real.adapters.blocking_connection.ReturnedMessage),
    (compat.ConnectionParameters, real.ConnectionParameters),
    (compat.URLParameters, real.URLParameters),
    (compat.PlainCredentials, real.PlainCredentials),
    (compat.BasicProperties, real.BasicProperties),
)
METHODS = (
    *("Basic.Deliver", "Basic.GetOk", "Basic.Return", "Basic.Cancel", "Queue.DeclareOk"),
    *("Queue.BindOk", "Queue.UnbindOk", "Queue.PurgeOk", "Queue.DeleteOk", "Exchange.DeclareOk"),
    *("Exchange.DeleteOk", "Exchange.BindOk", "Exchange.UnbindOk", "Tx.SelectOk", "Tx.CommitOk"),
    "Tx.RollbackOk",
)
# Of sockets and of the wire, which are not here; and pika's defaults of what is not there at all.
OF_THE_WIRE = {"response_for", "encode", "decode", "CLASS", "DefaultT", "T"}


def public(kind: type) -> set[str]:
    return {
        name
        for name in dir(kind)
        if not name.startswith(("_", "FLAG_", "DEFAULT_")) and name not in OF_THE_WIRE
    }


def parameters_of(call: Any) -> list[tuple[str, Any]]:
    return [(one.name, one.kind) for one in inspect.signature(call).parameters.values()]


def simple_defaults(call: Any) -> dict[str, Any]:
    """Those that are no markers and no values of one package's own."""
    return {
        one.name: one.default
        for one in inspect.signature(call).parameters.values()
        if isinstance(one.default, (bool, int, float, str, type(None)))
    }


@pytest.mark.parametrize(("ours", "theirs"), CLASSES, ids=lambda kind: kind.__name__)
def test_a_class_has_pika_s_names_and_parameters(ours: type, theirs: type) -> None:
    is_of_parameters = "host" in public(theirs)
    names = public(theirs) - (set(vars(theirs())) if theirs is real.BasicProperties else set())
    if is_of_parameters:  # attributes of instances here, properties there
        names -= {name for name in names if isinstance(getattr(theirs, name), property)}
    for name in names:
        assert hasattr(ours, name), name
        if inspect.isfunction(getattr(theirs, name)):
            assert parameters_of(getattr(ours, name)) == parameters_of(getattr(theirs, name)), name
            there = simple_defaults(getattr(theirs, name))
            here = simple_defaults(getattr(ours, name))
            assert {key: here.get(key) for key in there} == there, name
    assert parameters_of(ours.__init__) == parameters_of(theirs.__init__)  # type: ignore[misc]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_amqp_has_pika_s_fields(name: str) -> None:
    group, _, method = name.partition(".")
    ours = getattr(getattr(compat.spec, group), method)
    theirs = getattr(getattr(real.spec, group), method)
    assert (ours.NAME, ours.INDEX) == (theirs.NAME, theirs.INDEX)
    assert vars(ours()) == vars(theirs())
    assert parameters_of(ours.__init__)[1:] == parameters_of(theirs.__init__)[1:] or not vars(
        ours()
    )


def test_parameters_have_pika_s_values_unless_given() -> None:
    ours, theirs = compat.ConnectionParameters(), real.ConnectionParameters()
    names = {name for name in public(type(theirs)) if not inspect.isroutine(getattr(theirs, name))}
    for name in names - {"credentials"}:
        assert getattr(ours, name) == getattr(theirs, name), name
    url = "amqp://user:word@localhost:1234/%2Fv?heartbeat=7&socket_timeout=2.5&channel_max=9"
    ours_of_url, theirs_of_url = compat.URLParameters(url), real.URLParameters(url)
    for name in names - {"credentials"}:
        assert getattr(ours_of_url, name) == getattr(theirs_of_url, name), name
    credentials = ours_of_url.credentials
    assert isinstance(credentials, compat.PlainCredentials)
    assert (credentials.username, credentials.password) == ("user", "word")


def test_exceptions_have_pika_s_names_hierarchy_and_arguments() -> None:
    for name, theirs in vars(real.exceptions).items():
        if not inspect.isclass(theirs) or theirs.__module__ != "pika.exceptions":
            continue
        ours = getattr(compat.exceptions, name)
        bases = [base.__name__ for base in theirs.__mro__]
        assert [one.__name__ for one in ours.__mro__ if not one.__name__.startswith("_")] == bases
        assert parameters_of(ours.__init__) == parameters_of(theirs.__init__), name


def test_the_other_values_are_pika_s() -> None:
    assert [(mode.name, mode.value) for mode in compat.DeliveryMode] == [
        (mode.name, mode.value) for mode in real.DeliveryMode
    ]
    assert [str(kind.value) for kind in compat.exchange_type.ExchangeType] == [
        str(kind.value) for kind in real.exchange_type.ExchangeType
    ]
    assert compat.spec.PERSISTENT_DELIVERY_MODE == real.spec.PERSISTENT_DELIVERY_MODE
    assert compat.spec.TRANSIENT_DELIVERY_MODE == real.spec.TRANSIENT_DELIVERY_MODE


def test_modules_of_annotations_are_there_with_the_package() -> None:
    for name in ("channel.Channel", "spec.Basic.Deliver", "spec.BasicProperties"):
        for package in (real, compat):
            found: Any = package
            for part in name.split("."):
                found = getattr(found, part)
            assert isinstance(found, type)
    assert issubclass(blocking_connection.BlockingChannel, compat.channel.Channel)

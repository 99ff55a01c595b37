"""/api/definitions: export and import of all declarations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from starlette.routing import BaseRoute

from ... import store as _store
from ...serve.declared import declared
from ...serve.definitions import Definitions, declare, parse_definitions
from ...serve.user_list import entries, merge_users, users_as_json
from ..context import Context
from ..errors import BadRequest
from ..given import loads
from .calls import Call, done, resource
from .users import changing_users, known_users
from .versions import RABBITMQ
from .vhosts import add_vhost, as_definitions

__all__ = ["routes"]

_NOT_HERE = ("policies", "parameters", "topic_permissions")


def routes(context: Context) -> Sequence[BaseRoute]:
    """The routes of this module."""
    return [
        resource("definitions", context, GET=_export, POST=_import),
        resource("definitions/{vhost}", context, GET=_export_vhost, POST=_import_vhost),
        resource("all-configuration", context, GET=_export, POST=_import),
    ]


# ---- export ----


def _export(call: Call) -> Any:
    call.login.require("administrator")
    found: dict[str, list[Any]] = {"queues": [], "exchanges": [], "bindings": []}
    for vhost, store in call.context.stores().items():
        for kind, items in declared(store).items():
            found[kind] += [{**each, "vhost": vhost} for each in items]
    users = users_as_json(known_users(call.context))
    return {
        "rabbit_version": RABBITMQ,
        "rabbitmq_version": RABBITMQ,
        "product_name": "RabbitMQ",
        "product_version": RABBITMQ,
        "users": [each | {"limits": {}} for each in users["users"]],
        "vhosts": as_definitions(call.context),
        "permissions": users["permissions"],
        "topic_permissions": [],
        "parameters": [],
        "global_parameters": [],
        "policies": [],
        **found,
    }


def _export_vhost(call: Call) -> Any:
    call.login.require("administrator")
    found = declared(call.store)
    return {"rabbit_version": RABBITMQ, "parameters": [], "policies": [], **found}


# ---- import ----


def _document(call: Call) -> dict[str, Any]:
    """Reads the document, also from a form with a file, as RabbitMQ's own page sends it."""
    try:
        found = loads(call.data)
    except (ValueError, RecursionError):
        raise BadRequest("failed_to_parse_json") from None
    if not isinstance(found, dict):
        raise BadRequest("failed_to_parse_json: expected an object")
    for kind in _NOT_HERE:
        if found.get(kind):
            raise BadRequest(
                f"{kind}: there are none here, so what they say would not be done; take them out,"
                " or use 'pyqstore definitions import', which passes over them"
            )
    return found


def _import(call: Call) -> Any:
    call.login.require("administrator")
    document = _document(call)
    named = {
        vhost
        for kind in ("queues", "exchanges", "bindings")
        for vhost in _vhosts(document, kind, "vhost")
    }
    made = {
        name: entry
        for name, (_, entry) in zip(
            _vhosts(document, "vhosts", "name"), _entries(document, "vhosts"), strict=True
        )
    }
    for vhost in named - made.keys() - call.context.stores().keys():
        raise BadRequest(f"no_such_vhost: {vhost!r}; it is not among vhosts, either")
    parsed = {vhost: _parsed(document, vhost) for vhost in named}
    for vhost, entry in made.items():
        if vhost not in call.context.stores():
            add_vhost(call, vhost, entry)
    stores = call.context.stores()
    for vhost, found in parsed.items():
        if vhost not in stores:
            raise BadRequest(f"no_such_vhost: {vhost!r}; it was deleted meanwhile")
        _take(stores[vhost], found)
    _take_users(call, document)
    return done()


def _import_vhost(call: Call) -> Any:
    call.login.require("administrator")
    _take(call.store, _parsed(_document(call), call.vhost))
    return done()


def _entries(document: dict[str, Any], kind: str) -> list[tuple[str, dict[str, Any]]]:
    try:
        return list(entries(document, kind))
    except ValueError as error:
        raise BadRequest(str(error)) from None


def _vhosts(document: dict[str, Any], kind: str, key: str) -> Iterator[str]:
    for where, entry in _entries(document, kind):
        vhost = entry.get(key, "/")
        if not isinstance(vhost, str):
            raise BadRequest(f"{where}: {key} must be text, not {vhost!r:.80}")
        yield vhost


def _parsed(document: dict[str, Any], vhost: str) -> Definitions:
    try:
        return parse_definitions(document, vhost)
    except ValueError as error:
        raise BadRequest(str(error)) from None


def _take(store: _store.Store, definitions: Definitions) -> None:
    try:
        declare(store, definitions)
    except ValueError as error:
        raise BadRequest(str(error)) from None


def _take_users(call: Call, document: dict[str, Any]) -> None:
    """Imports users.  If none of them changes, the file of users need not exist."""
    there = users_as_json(known_users(call.context))
    given = [each for _, each in _entries(document, "users")]
    names = [each["name"] for each in there["users"]]
    permissions = [each for _, each in _entries(document, "permissions")]
    if all(each.get("name") in names and not each.get("password_hash") for each in given) and all(
        each in there["permissions"] for each in permissions
    ):
        return
    with changing_users(call) as users:
        merge_users(users, document)

"""/api/vhosts: virtual hosts, one store each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from starlette.routing import BaseRoute

from ...errors import StoreClosed
from ...serve.user_list import Permission
from ...serve.vhost_folder import VhostNote
from ...serve.vhosts import Stores
from ..context import Context
from ..errors import BadRequest, Missing
from ..firehose import is_traced, switch
from ..node import NODE
from .calls import Call, created, done, resource
from .lists import listed
from .totals import of_messages, of_queues
from .users import changing_users, has_stored_users

__all__ = ["add_vhost", "as_definitions", "routes"]


def routes(context: Context) -> Sequence[BaseRoute]:
    """The routes of this module."""
    return [
        resource("vhosts", context, GET=_list),
        resource("vhosts/{vhost}", context, GET=_show, PUT=_put, DELETE=_delete),
    ]


def as_definitions(context: Context) -> list[dict[str, Any]]:
    """All virtual hosts in the form of definitions; missing values are left out."""
    notes = {name: _note(context, name) for name in context.stores()}
    return [
        {"name": name, **({} if note == VhostNote() else note.to_dict())}
        for name, note in notes.items()
    ]


def _note(context: Context, name: str) -> VhostNote:
    return VhostNote() if context.keeper is None else context.keeper.note(name)


def _item(call: Call, name: str) -> dict[str, Any]:
    view, note = call.context.sampler.look(name), _note(call.context, name).to_dict()
    store = call.context.stores().get(name)
    return {
        "name": name,
        **note,
        "metadata": note,
        "default_queue_type": "undefined",
        "tracing": store is not None and is_traced(store),
        "cluster_state": {NODE: "running"},
        **of_queues([view]),
        "message_stats": of_messages([view]),
    }


def _list(call: Call) -> Any:
    return listed(call, [_item(call, name) for name in call.seen()])


def _show(call: Call) -> Any:
    return _item(call, call.vhost)


def _put(call: Call) -> Any:
    call.login.require("administrator")
    name, body = call.name("vhost"), call.body()
    tracing = _tracing(body)
    if body.get("default_queue_type") not in (None, "undefined", "classic"):
        raise BadRequest("a vhost has no default_queue_type but classic")
    # If virtual hosts cannot be created, tracing of existing ones can still be switched.
    is_there = name in call.context.stores() and not body.keys() & {"description", "tags"}
    is_new = not is_there and add_vhost(call, name, body)
    if tracing is not None:
        _trace(call.context, name, tracing)
    return created() if is_new else done()


def _tracing(body: dict[str, Any]) -> bool | None:
    found = body.get("tracing")
    if found is None or isinstance(found, bool):
        return found
    try:
        return {"true": True, "false": False}[found]
    except (KeyError, TypeError):
        raise BadRequest(f"tracing must be true or false, not {found!r}") from None


def _trace(context: Context, name: str, tracing: bool) -> None:
    store = context.stores().get(name)
    if store is None:  # deleted meanwhile
        raise Missing
    try:
        switch(name, store, context.connection_name, on=tracing)
    except StoreClosed:
        if name in context.stores():
            raise
        raise Missing from None


def add_vhost(call: Call, name: str, said: Any) -> bool:
    """Creates a virtual host, in which the user may do everything; whether it is new.  ``said``:
    its description and tags.  BadRequest: it cannot be created, and why."""
    keeper = _keeper(call, name)
    try:
        is_new = keeper.add(name, said)
    except (ValueError, OSError) as error:
        raise BadRequest(str(error)) from None
    if is_new and has_stored_users(call):
        try:
            with changing_users(call) as users:
                if (user := users.get(call.login.name)) is not None:
                    given = {**user.permissions, name: Permission()}
                    users[call.login.name] = replace(user, permissions=given)
        except BaseException:
            keeper.remove(name, lambda: None)
            raise
    return is_new


def _delete(call: Call) -> Any:
    """Deletes its permissions first, so that a new virtual host of the name begins without any."""
    call.login.require("administrator")
    name = call.name("vhost")
    try:
        _keeper(call, name).remove(name, lambda: _revoke(call, name))
    except KeyError:
        raise Missing from None
    except (ValueError, OSError) as error:
        raise BadRequest(str(error)) from None
    return done()


def _revoke(call: Call, name: str) -> None:
    if has_stored_users(call):
        with changing_users(call) as users:
            for each, user in users.items():
                left = {key: given for key, given in user.permissions.items() if key != name}
                users[each] = replace(user, permissions=left)


def _keeper(call: Call, name: str) -> Stores:
    if call.context.keeper is None:
        raise BadRequest(f"vhost {name!r}: the program that serves this page gives it its vhosts")
    return call.context.keeper

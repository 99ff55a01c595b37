"""The command ``pyqstore serve``."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from .. import store as _store
from ..options import StoreOptions
from ..terminal import complain, errors_told, visible
from .addresses import Endpoint, endpoints
from .amqp import AmqpListener
from .archiving import archived
from .listeners import (
    Entrance,
    Listener,
    Tls,
    check_ready_file,
    remove_ready_file,
    write_ready_file,
)
from .stored_users import users_of
from .systemd import Manager, passed_sockets
from .tokens import Tokens
from .users import Users
from .vhost_folder import VhostFolder
from .vhosts import Stores, opened, vhost_directories

__all__ = ["serve"]

_log = logging.getLogger("pyqstore")
_CLOSE_S = 5.0
_LOOK_S = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_Maker = Callable[[Stores, Entrance], Listener]

_file = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--listen",
    "listens",
    metavar="HOST:PORT|unix:PATH",
    multiple=True,
    help="Accept AMQP 0-9-1 there; may be repeated.  amqp://HOST:PORT is without TLS,"
    " amqps://HOST:PORT with it.  Without this option: at the sockets that systemd passes.",
)
@click.option("--flight", metavar="HOST:PORT|unix:PATH", help="Accept Arrow Flight there.")
@click.option(
    "--http",
    metavar="HOST:PORT|unix:PATH",
    help="Serve RabbitMQ's management API, metrics and a page to look at there.",
)
@click.option(
    "--http-host",
    "http_hosts",
    metavar="NAME",
    multiple=True,
    help="A further name by which browsers call the HTTP server; may be repeated.",
)
@click.option(
    "--vhost",
    "vhosts",
    metavar="NAME=DIRECTORY",
    multiple=True,
    help="Another store, for AMQP clients that ask for that virtual host; may be repeated.",
)
@click.option(
    "--vhosts",
    "vhost_folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="A store in there for each further virtual host; the management API makes and deletes"
    " them.",
)
@click.option(
    "--user",
    "users",
    metavar="NAME:PASSWORD",
    multiple=True,
    help="Who may connect; may be repeated.  Without any: the users of the store (pyqstore user),"
    " or if it has none guest:guest, from this machine alone.",
)
@click.option(
    "--heartbeat",
    metavar="SECONDS",
    type=click.IntRange(0, 65_535),
    help="Offered to AMQP clients; 0: none; 60.",
)
@click.option(
    "--connections-max",
    metavar="N",
    type=click.IntRange(1, 2**32 - 1),
    help="More AMQP connections are closed as they come; 16384.",
)
@click.option(
    "--channel-max",
    metavar="N",
    type=click.IntRange(1, 65_535),
    help="Channels of a connection, offered to AMQP clients; 2047.",
)
@click.option(
    "--frame-max",
    metavar="BYTES",
    type=click.IntRange(4096, 2**31 - 1),
    help="Of a frame, offered to AMQP clients; 131072.",
)
@click.option(
    "--quorum-as-classic",
    is_flag=True,
    default=None,
    help="AMQP clients that declare a quorum queue get a durable classic one, not an error.",
)
@click.option(
    "--proxy-protocol",
    is_flag=True,
    default=None,
    help="AMQP connections come through a proxy that says whose they are (PROXY protocol).",
)
@click.option(
    "--memory-budget",
    metavar="SIZE",
    help='Of each store, as "256MiB": messages and what clients may have under way stay within it.',
)
@click.option("--tls-cert", type=_file, help="The server's certificate, PEM: speak TLS.")
@click.option("--tls-key", type=_file, help="Its key.")
@click.option(
    "--token-file",
    type=_file,
    help="Clients of Arrow Flight come in with a token of this file, too, one on each line.",
)
@click.option("--tls-ca", type=_file, help="Clients need a certificate that this one signed.")
@click.option(
    "--archive",
    metavar="TARGET",
    help="Archive the store there meanwhile: a directory, or a URL as s3://BUCKET/PATH.",
)
@click.option(
    "--archive-keep-days",
    metavar="N",
    type=click.FloatRange(min=0),
    help="Remove from there what only older moments need.",
)
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the addresses there, as JSON, when all accept.",
)
def serve(
    directory: Path,
    listens: tuple[str, ...],
    flight: str | None,
    http: str | None,
    http_hosts: tuple[str, ...],
    vhosts: tuple[str, ...],
    vhost_folder: Path | None,
    users: tuple[str, ...],
    heartbeat: int | None,
    connections_max: int | None,
    channel_max: int | None,
    frame_max: int | None,
    quorum_as_classic: bool | None,
    proxy_protocol: bool | None,
    memory_budget: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    token_file: Path | None,
    tls_ca: Path | None,
    archive: str | None,
    archive_keep_days: float | None,
    ready_file: Path | None,
) -> None:
    """Own the store in DIRECTORY and let other processes in, until SIGTERM or SIGINT.

    It is the virtual host "/" of AMQP.  Prints a line for each listener when it accepts; port 0 is
    any that is free.  Stores that are not there are made.  At the end everything that was accepted
    is durable, and the exit status 0.
    """
    # Before there are threads, which would receive signals otherwise: pyarrow starts some.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    with errors_told():
        passed = passed_sockets(os.environ)
        manager = Manager.of(os.environ)
    if passed and listens:
        raise click.UsageError("systemd passes a socket to listen at: leave --listen out")
    addresses = passed or listens
    if not addresses and flight is None and http is None:
        raise click.UsageError("nothing to serve: give --listen, --flight or --http")
    if http_hosts and http is None:
        raise click.UsageError("--http-host needs --http: it is about browsers")
    if token_file is not None and flight is None:
        raise click.UsageError("--token-file needs --flight: AMQP clients have no tokens")
    if archive is not None and (vhosts or vhost_folder is not None):
        raise click.UsageError(
            "--archive is of one store: with virtual hosts run pyqstore archive for each store"
        )
    if archive_keep_days is not None and archive is None:
        raise click.UsageError("--archive-keep-days needs --archive")
    amqp = _given(
        heartbeat=heartbeat,
        connections_max=connections_max,
        channel_max=channel_max,
        frame_max=frame_max,
        quorum_as_classic=quorum_as_classic,
        proxy_protocol=proxy_protocol,
    )
    if not addresses:
        _check_without_amqp(vhosts, vhost_folder, amqp)
    with errors_told():
        _log.addHandler(_Stderr(logging.WARNING))
        known = Users.of(users) if users else users_of(directory, None)
        tls = Tls.of(tls_cert, tls_key, tls_ca)
        places_of_amqp = _endpoints(addresses, tls, has_others=bool(flight or http))
        entrance = Entrance(known, tls, Tokens.of(token_file), amqp)
        # An invalid option must not create a store.
        folder = None if vhost_folder is None else VhostFolder(vhost_folder)
        found = {} if folder is None else folder.places()
        places = vhost_directories(vhosts, directory, found)
        if flight is not None:
            _check_flight(flight, entrance)
        if ready_file is not None:
            check_ready_file(ready_file)
        _raise_descriptors()
        options: StoreOptions = {} if memory_budget is None else {"memory_budget": memory_budget}
        stores = opened(directory, places, options, folder)
        makers = _makers(places_of_amqp, flight, http, http_hosts)
        work = partial(archived, place=archive, keep_days=archive_keep_days)
        all_ended = _run(stores, work, entrance, makers, ready_file, manager)
    sys.stdout.flush()
    if not all_ended:
        # The store is closed.  A call that does not end would keep the interpreter running.
        complain("some calls did not end in time: their clients see the connection end")
        os._exit(0)


def _endpoints(addresses: Sequence[str], tls: Tls | None, *, has_others: bool) -> list[Endpoint]:
    """ValueError: an address needs TLS, and there is no certificate, or the other way round."""
    found = endpoints(addresses, has_tls=tls is not None)
    if tls is not None and not has_others and not any(each.speaks_tls for each in found):
        raise ValueError(
            "--tls-cert is of no use: no address speaks TLS, neither amqp://HOST:PORT nor a"
            " socket in the file system does"
        )
    return found


def _makers(
    places: Sequence[Endpoint], flight: str | None, http: str | None, hosts: tuple[str, ...]
) -> list[_Maker]:
    makers = [_amqp(place, number) for number, place in enumerate(places, 1)]
    if flight is not None:
        makers.append(lambda own, entrance: _flight(own.store, flight, entrance))
    if http is not None:
        makers.append(lambda own, entrance: _http(own, http, entrance, hosts))
    return makers


def _check_without_amqp(
    vhosts: tuple[str, ...], folder: Path | None, amqp: Mapping[str, object]
) -> None:
    if vhosts or folder is not None:
        option = "--vhost" if vhosts else "--vhosts"
        raise click.UsageError(f"{option} needs --listen: AMQP alone has virtual hosts")
    if amqp:
        option = next(iter(amqp)).replace("_", "-")
        raise click.UsageError(f"--{option} needs --listen: it is about AMQP clients")


def _given(**options: object) -> dict[str, object]:
    """The options that were given on the command line."""
    return {name: value for name, value in options.items() if value is not None}


def _raise_descriptors() -> None:
    """Raises the limit of descriptors to the hard limit, because each client takes one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Stderr(logging.Handler):
    """Writes log records of stores to stderr, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes in the form of errors."""
        complain(record.getMessage())


def _amqp(place: Endpoint, number: int) -> _Maker:
    """The first listener has the protocol's name."""
    protocol = "amqp" if number == 1 else f"amqp-{number}"
    return lambda own, entrance: AmqpListener(own, place, entrance, protocol=protocol)


def _flight(store: _store.Store, address: str, entrance: Entrance) -> Listener:
    """Imports the module only if needed: it takes gRPC."""
    from ..flight.server import FlightListener

    return FlightListener(store, address, entrance)


def _http(own: Stores, address: str, entrance: Entrance, hosts: tuple[str, ...]) -> Listener:
    """Imports the module only if needed: that takes a while."""
    from ..http.server import HttpListener

    return HttpListener(own, address, entrance, hosts)


def _check_flight(address: str, entrance: Entrance) -> None:
    from ..flight.places import Place

    Place.of(address, entrance)


def _run(
    stores: contextlib.AbstractContextManager[Stores],
    work: Callable[[_store.Store], contextlib.AbstractContextManager[None]],
    entrance: Entrance,
    makers: Sequence[_Maker],
    ready_file: Path | None,
    manager: Manager,
) -> bool:
    """Serves until a signal, or until the store of DIRECTORY has failed; whether all running calls
    ended then."""
    manager.begin("opening the store")
    with stores as own, work(own.store), _ready(ready_file) as announce:
        _observe(own)
        listeners: list[Listener] = []
        try:
            for make in makers:
                listeners.append(make(own, entrance))
                told = listeners[-1]
                click.echo(f"{told.protocol}: accepting at {visible(told.address)}")
            announce(listeners)
            manager.ready(_accepting(listeners))
            while signal.sigtimedwait(_SIGNALS, manager.wait_s(_LOOK_S)) is None:
                own.end_failed_vhosts()
                if own.store.stats().failed:
                    break  # closing it raises the error
                manager.keep_alive()
        finally:
            manager.stop("closing connections and the store")
            ended = [listener.close(_CLOSE_S) for listener in listeners]
    return all(ended)


def _observe(own: Stores) -> None:
    """Adds OpenTelemetry's metrics, if its SDK was set up, for example by
    ``opentelemetry-instrument``."""
    if "opentelemetry.metrics" in sys.modules:
        from ..metering import observe

        for store in (own.store, *own.vhosts.values()):
            observe(store)
        own.follow(lambda _, store: observe(store))


def _accepting(listeners: Sequence[Listener]) -> str:
    places = (f"{each.protocol} at {visible(each.address)}" for each in listeners)
    return f"accepting {', '.join(places)}"


@contextlib.contextmanager
def _ready(path: Path | None) -> Iterator[Callable[[Sequence[Listener]], None]]:
    """Removes an old ready file, writes a new one when the listeners accept, and removes it
    afterwards.  An old file is of no running server, because this process owns the store."""
    if path is None:
        yield lambda _: None
        return
    path.unlink(missing_ok=True)
    known: list[tuple[int, ...]] = []
    try:
        yield lambda listeners: known.append(write_ready_file(path, listeners))
    finally:
        for each in known:
            remove_ready_file(path, each)

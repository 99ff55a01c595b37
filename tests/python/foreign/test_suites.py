"""Other projects' own tests, unpatched, against a listener."""

from __future__ import annotations

import base64
import fcntl
import random
import re
import shutil
import socket
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyqstore
from pyqstore.serve.passwords import hashed
from pyqstore.serve.user_file import changed_users
from pyqstore.serve.user_list import Permission, User

from ..serving import Served
from . import suites
from .fetching import Missing, program
from .playing import SECONDS, Fetched, passed_by_pytest, played

# Those that are left out need a broker with certificates, or are played apart: they end connections
# over the management's HTTP.
GO_RECOVERY = "Recovery"
GO_LEFT_OUT = f"{GO_RECOVERY}|TLS"
GO_TESTS, GO_RECOVERY_TESTS = 222, 17
GO_ATTEMPTS = 2
MANAGEMENT = 15672  # these have no other port for it
AMQP_PORT = 5672
# Of the client of the management API: what is not here (HTTP.md), and queues that are quorum.
HTTP_LEFT_OUT = (
    "(?i)polic|federation|shovel|parameter|cluster-name|declares a queue"
    "|sets the limits|returns (all )?the limits|topic.permissions"
    r"|queues(/\{vhost\})? with arguments"
)
HTTP_TESTS = 79
PROGRAMS = Path(__file__).parent / "programs"
EVERYTHING = ""  # in place of a test's name: the program failed, and none of its tests
KOMBU_TESTS = 51
KOMBU_COMMON_TESTS = 47
# Others of them want certificates, or to talk to a machine elsewhere.
AMQP_PLAYED = "plain"
AMQP_TESTS = 12
# Left out: what wants certificates; a cluster of one certain name; an address of which nothing
# answers, not even that it cannot be reached.
AMQPSTORM_LEFT_OUT = "ssl or api_cluster_name or api_with_inaccessible"
AMQPSTORM_LONG = "reliability"  # its client sleeps most of a minute
AMQPSTORM_TESTS, AMQPSTORM_LONG_TESTS = 115, 33
# A busy machine does not keep the second that some of them give the server.
AMQPSTORM_AGAIN = ("--reruns", "2", "--only-rerun", "took too long|[Tt]imed out")
LAPIN_TESTS = 35


def played_by_go(
    module: Path, port: int, *more: str, left_out: str = GO_LEFT_OUT
) -> tuple[set[str], set[str], str]:
    """Names of tests that passed and that failed, and the output."""
    status, said = played(
        *("go", "test", "-count=1", "-v", "-tags", "integration", "-skip", left_out, *more, "."),
        cwd=module,
        AMQP_URL=f"amqp://guest:guest@127.0.0.1:{port}/",
        **suites.GO_ENVIRONMENT,
    )
    found = re.findall(r"^ *--- (PASS|FAIL): (\S+)", said, re.M)
    failed = {name for how, name in found if how == "FAIL"}
    if status != 0 and not failed:  # as a socket that nobody has closed when the tests ended
        failed = {EVERYTHING}
    return {name for how, name in found if how == "PASS"}, failed, said


def check_free() -> None:
    for port in (AMQP_PORT, MANAGEMENT):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError as error:
                raise Missing(f"port {port}: {error}") from error


@pytest.fixture
def usual_ports(fetched: Fetched) -> Iterator[None]:
    """AMQP_PORT and MANAGEMENT are free, and no other run of these tests takes them meanwhile."""
    with (Path(tempfile.gettempdir()) / "pyqstore-usual-ports").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fetched(check_free)
        yield


def put_vhost(name: str) -> None:
    guest = base64.b64encode(b"guest:guest").decode()
    asked = urllib.request.Request(
        f"http://127.0.0.1:{MANAGEMENT}/api/vhosts/{name}",
        method="PUT",
        headers={"Authorization": f"Basic {guest}"},
    )
    with urllib.request.urlopen(asked) as answer:
        assert answer.status == 201


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS + 300)
def test_the_go_client_passes_its_own_tests(port: int, fetched: Fetched) -> None:
    """Some of them give the client, or ten requests of it, a millisecond: what failed on a busy
    machine is played again, alone."""
    module = fetched(suites.go_client)
    passed, failed, said = played_by_go(module, port)
    for _ in range(GO_ATTEMPTS):
        if failed:
            names = "|".join(sorted({name.partition("/")[0] for name in failed}))
            only = () if EVERYTHING in failed else ("-run", f"^({names})$")
            more, failed, said = played_by_go(module, port, *only)
            passed |= more
    assert not failed, f"{sorted(failed)}\n{said[-8000:]}"
    assert len(passed) >= GO_TESTS


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.usefixtures("usual_ports")
def test_the_go_client_recovers_in_its_own_tests(
    store: pyqstore.Store, port: int, fetched: Fetched
) -> None:
    module = fetched(suites.go_client)
    with store.serve_page(MANAGEMENT):
        passed, failed, said = played_by_go(module, port, "-run", GO_RECOVERY, left_out="TLS")
    assert not failed, f"{sorted(failed)}\n{said[-8000:]}"
    assert len(passed) >= GO_RECOVERY_TESTS


@pytest.mark.foreign
@pytest.mark.timeout(3 * SECONDS + 300)
@pytest.mark.usefixtures("usual_ports")
def test_the_go_client_of_the_management_api_passes_its_own_tests(
    tmp_path: Path, fetched: Fetched
) -> None:
    """Terraform's provider is made of it.  It wants the usual ports, a virtual host of a certain
    name, and sleeps for most of five minutes."""
    module = fetched(suites.go_client_of_http)
    directory = tmp_path / "store"
    pyqstore.open(directory).close()
    with changed_users(directory, create=True) as users:
        everywhere = {"/": Permission(), "rabbit/hole": Permission()}
        users["guest"] = User(hashed("guest"), ("administrator",), everywhere)
    options = ("--vhosts", str(tmp_path / "vhosts"), "--listen", f"127.0.0.1:{AMQP_PORT}")
    served = Served(directory, *options, "--http", f"127.0.0.1:{MANAGEMENT}")
    try:
        served.addresses()
        put_vhost("rabbit%2Fhole")
        status, said = played(
            *("go", "test", "-count=1", "-ginkgo.noColor", f"-ginkgo.skip={HTTP_LEFT_OUT}", "."),
            cwd=module,
            seconds=3 * SECONDS,
            **suites.GO_ENVIRONMENT,
        )
    finally:
        served.end()
    assert status == 0, said[-8000:]
    (passed,) = re.findall(r"(\d+) Passed", said)
    assert int(passed) >= HTTP_TESTS, said[-2000:]


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
def test_kombu_passes_its_own_tests(port: int, fetched: Fetched) -> None:
    source = fetched(lambda: suites.source_of(suites.KOMBU))
    status, said = played(
        *(suites.python_clients(), "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        "t/integration/test_py_amqp.py",
        cwd=source,
        RABBITMQ_HOST="127.0.0.1",
        RABBITMQ_5672_TCP=str(port),
    )
    assert status == 0, said[-8000:]
    assert passed_by_pytest(said) == KOMBU_TESTS, said[-2000:]


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
def test_kombu_passes_its_common_tests_over_a_store(tmp_path: Path, fetched: Fetched) -> None:
    """With this interpreter, which has pyqstore; its kombu need not be the sources' version."""
    source = tmp_path / "kombu"
    shutil.copytree(fetched(lambda: suites.source_of(suites.KOMBU)) / "t", source / "t")
    shutil.copy(PROGRAMS / "kombu_transport.py", source / "t/integration/test_pyqstore.py")
    (source / "pytest.ini").write_text("[pytest]\npython_classes = test_*\n")
    status, said = played(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"),
        "t/integration/test_pyqstore.py",
        cwd=source,
        PYTHONPATH=str(source),
        PYQSTORE_STORE=str(tmp_path / "store"),
    )
    assert status == 0, said[-8000:]
    assert passed_by_pytest(said) == KOMBU_COMMON_TESTS, said[-2000:]


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
def test_py_amqp_passes_its_own_tests(port: int, fetched: Fetched) -> None:
    source = fetched(lambda: suites.source_of(suites.AMQP))
    status, said = played(
        *(suites.python_clients(), "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *("t/integration/test_rmq.py", "-k", AMQP_PLAYED),
        cwd=source,
        RABBITMQ_HOST="127.0.0.1",
        RABBITMQ_5672_TCP=str(port),
    )
    assert status == 0, said[-8000:]
    assert passed_by_pytest(said) == AMQP_TESTS, said[-2000:]


@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.parametrize(
    ("which", "count"),
    [
        pytest.param(f"not {AMQPSTORM_LONG}", AMQPSTORM_TESTS, id="most", marks=pytest.mark.slow),
        pytest.param(
            AMQPSTORM_LONG, AMQPSTORM_LONG_TESTS, id="reliability", marks=pytest.mark.foreign
        ),
    ],
)
def test_amqpstorm_passes_its_own_tests(
    tmp_path: Path, fetched: Fetched, which: str, count: int
) -> None:
    """They know a host of AMQP and no port: the host is an address of this machine that no other
    server listens at.  They change users: guest is one of the store's own."""
    python = fetched(suites.python_of_amqpstorm)
    source = fetched(lambda: suites.source_of(suites.AMQPSTORM))
    host = f"127.{random.randrange(1, 255)}.{random.randrange(256)}.{random.randrange(1, 255)}"
    directory = tmp_path / "store"
    pyqstore.open(directory).close()
    with changed_users(directory, create=True) as users:
        users["guest"] = User(hashed("guest"), ("administrator",), {"/": Permission()})
    options = ("--vhosts", str(tmp_path / "vhosts"), "--listen", f"{host}:5672")
    served = Served(directory, *options, "--http", f"{host}:0")
    try:
        url = f"http://{served.addresses()['http']}"
        status, said = played(
            *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *AMQPSTORM_AGAIN),
            *("-c", "/dev/null", "--rootdir", source, "amqpstorm/tests/functional"),
            *("-k", f"{which} and not ({AMQPSTORM_LEFT_OUT})"),
            cwd=source,
            AMQP_HOST=host,
            AMQP_USERNAME="guest",
            AMQP_PASSWORD="guest",
            AMQP_URI=f"amqp://guest:guest@{host}:5672/%2F",
            AMQP_HTTP_URL=url,
            AMQP_SSL_HOST=host,
            AMQP_SSL_URI=f"amqps://guest:guest@{host}:5671/%2F",
        )
    finally:
        served.end()
    assert status == 0, said[-8000:]
    assert passed_by_pytest(said) == count, said[-2000:]


@pytest.mark.foreign
@pytest.mark.timeout(3 * SECONDS)
def test_lapin_passes_its_own_tests(port: int, fetched: Fetched) -> None:
    crate = fetched(suites.rust_client)
    command = suites.cargo_test(program("cargo", "cargo"))
    status, said = played(
        *(*command, "--offline", "--no-fail-fast", "--", "--test-threads=1"),
        cwd=crate,
        AMQP_ADDR=f"amqp://guest:guest@127.0.0.1:{port}/%2f",
    )
    assert status == 0, said[-8000:]
    assert sum(map(int, re.findall(r"(\d+) passed", said))) == LAPIN_TESTS, said


def test_the_tools_of_rabbitmq_c_publish_and_consume(port: int, fetched: Fetched) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{port}/%2f"

    def tool(name: str, *arguments: str) -> tuple[int, str]:
        path = fetched(lambda: program(name, "amqp-tools"))
        return played(path, "-u", url, *arguments, cwd=Path("/"))

    assert tool("amqp-declare-queue", "-d", "-q", "tools") == (0, "tools\n")
    for body in ("first", "second", "third"):
        assert tool("amqp-publish", "-r", "tools", "-p", "-b", body) == (0, "")
    assert tool("amqp-get", "-q", "tools") == (0, "first")
    assert tool("amqp-consume", "-q", "tools", "-c", "2", "cat") == (0, "secondthird")
    assert tool("amqp-get", "-q", "tools") == (2, "")
    assert tool("amqp-delete-queue", "-q", "tools") == (0, "0\n")

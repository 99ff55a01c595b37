"""Celery's own integration tests, unpatched: against a listener, and over ``pyqstore.compat.kombu``
to a store that the tests' process owns, which is their worker as well."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.laboratory.rivals.server import Server, free_port

from . import suites
from .fetching import program
from .playing import SECONDS, Fetched, passed_by_pytest, played

# Left out of all: what wants Django and no broker; what wants a host whose name nobody knows, and
# no broker; what compares a worker's log ten milliseconds later, and fails beside RabbitMQ as well;
# what expects that the worker takes a task later than the test goes on.
LEFT_OUT = "django or run_worker or test_trace_log_arguments or test_replaced_task_nesting_level"
# Left out where it is to be quick: what waits for tasks that sleep and for processes to start, what
# calls without a broker, and what is skipped, after a second, where results are not in Redis. A
# retry is expected to fail with results in rpc, which forgets the states before the last one.
LONG = (
    "(test_retry and not test_retry_) or test_expired or test_timeout or test_revoked or"
    " (test_active and not test_active_queues) or test_query_task or auto"
)
NO_BROKER = "test_apply_tasks or multiserver"
IN_REDIS = "redis or test_revoke_keeps_state or test_replaced_task_nesting_chain"
QUICK = f"{LEFT_OUT} or {LONG} or {NO_BROKER} or {IN_REDIS}"
PLUGINS = ("pytest_timeout", "pytest_rerunfailures", "pytest_subtests.plugin")
LISTENER_TESTS = 40
STORE_TESTS = 10
STORE_TASKS_TESTS = 40
CANVAS_TESTS = 233
CANVAS_SECONDS = 1800.0


@dataclass(frozen=True)
class Celery:
    """Where Celery's tests are, what runs them, their broker, and what modules they have."""

    tree: Path
    python: Path
    broker: str
    modules: str

    def passed(
        self, *files: str, left_out: str, seconds: float = 2 * SECONDS, backend: str, **more: str
    ) -> int:
        """How many of its tests pass.  None fails."""
        plugins = [f"-p{name}" for name in (*PLUGINS, "celery.contrib.pytest", "no:cacheprovider")]
        status, said = played(
            *(self.python, "-m", "pytest", "-q", *plugins, "-k", f"not ({left_out})"),
            *(f"t/integration/{file}.py" for file in files),
            cwd=self.tree,
            seconds=seconds,
            PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
            PYTHONPATH=self.modules,
            TEST_BROKER=self.broker,
            TEST_BACKEND=backend,
            **more,
        )
        assert status == 0, said[-8000:]
        return passed_by_pytest(said)


@pytest.fixture
def tree(tmp_path: Path, fetched: Fetched) -> Path:
    """Celery's tests, to write in."""
    source = fetched(lambda: suites.source_of(suites.CELERY))
    tree = tmp_path / "celery"
    shutil.copytree(source / "t", tree / "t")
    shutil.copy(source / "pyproject.toml", tree)
    return tree


@pytest.fixture
def on_a_listener(tree: Path, port: int, fetched: Fetched) -> Celery:
    broker = f"pyamqp://guest:guest@127.0.0.1:{port}//"
    return Celery(tree, fetched(suites.python_of_celery), broker, str(tree))


@pytest.fixture
def over_a_store(tree: Path, tmp_path: Path, fetched: Fetched) -> Celery:
    """With this interpreter, which has pyqstore, and the other's packages.  Each of its processes
    knows the transport's name."""
    python: Path = fetched(suites.python_of_celery)
    (packages,) = (python.parents[1] / "lib").glob("python*/site-packages")
    (tree / "sitecustomize.py").write_text("import pyqstore.compat.kombu\n")
    broker = f"pyqstore:///{tmp_path / 'store'}"
    return Celery(tree, Path(sys.executable), broker, f"{tree}:{packages}")


@pytest.fixture
def redis_port(tmp_path: Path, fetched: Fetched) -> Iterator[int]:
    """A Redis that forgets all, for results."""
    redis = fetched(lambda: program("redis-server", "redis-server"))
    port, server = free_port(), Server(tmp_path)
    server.run([redis, "--bind", "127.0.0.1", "--port", str(port), "--save", ""], port)
    yield port
    server.stop()


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS + 300)
def test_celery_passes_its_own_tests(on_a_listener: Celery) -> None:
    assert on_a_listener.passed("test_tasks", left_out=QUICK, backend="rpc") == LISTENER_TESTS


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS + 300)
def test_celery_passes_its_own_tests_over_a_store(over_a_store: Celery) -> None:
    files = ("test_inspect", "test_worker")
    assert over_a_store.passed(*files, left_out=QUICK, backend="rpc") == STORE_TESTS


@pytest.mark.foreign
@pytest.mark.timeout(CANVAS_SECONDS + 300)
def test_celery_passes_its_own_tests_of_canvas(on_a_listener: Celery, redis_port: int) -> None:
    """Chords, and what most of these tests see, are kept in Redis."""
    passed = on_a_listener.passed(
        "test_canvas",
        left_out=LEFT_OUT,
        backend=f"redis://127.0.0.1:{redis_port}/0",
        seconds=CANVAS_SECONDS,
        REDIS_HOST="127.0.0.1",
        REDIS_PORT=str(redis_port),
    )
    assert passed == CANVAS_TESTS


@pytest.mark.foreign
@pytest.mark.timeout(2 * SECONDS + 300)
def test_celery_passes_its_own_tests_of_tasks_over_a_store(over_a_store: Celery) -> None:
    assert over_a_store.passed("test_tasks", left_out=QUICK, backend="rpc") == STORE_TASKS_TESTS


@pytest.mark.foreign
@pytest.mark.timeout(CANVAS_SECONDS + 300)
def test_celery_passes_its_own_tests_of_canvas_over_a_store(
    over_a_store: Celery, redis_port: int
) -> None:
    passed = over_a_store.passed(
        "test_canvas",
        left_out=LEFT_OUT,
        backend=f"redis://127.0.0.1:{redis_port}/0",
        seconds=CANVAS_SECONDS,
        REDIS_HOST="127.0.0.1",
        REDIS_PORT=str(redis_port),
    )
    assert passed == CANVAS_TESTS

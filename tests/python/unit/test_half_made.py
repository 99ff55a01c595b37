"""Objects whose constructor did not come to its end: they go without a word."""

import asyncio
import gc
import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import pyqstore
from pyqstore import aio
from pyqstore import session as jms
from pyqstore.compat import pika

PACKAGE = Path(pyqstore.__file__).parent
Trace = Callable[[FrameType, str, object], Any]


@pytest.fixture
def silent() -> Iterator[None]:
    """Fails when something was told that nobody could catch."""
    heard: list[str] = []

    def hear(told: Any) -> None:
        heard.append(f"{told.exc_value!r} in {told.object!r}")

    before, sys.unraisablehook = sys.unraisablehook, hear
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
            gc.collect()
    finally:
        sys.unraisablehook = before
    assert heard == []


def finalized() -> Iterator[type]:
    """Every class with ``__del__``."""
    for file in sorted(PACKAGE.rglob("*.py")):
        if "def __del__" not in file.read_text():
            continue
        name = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
        module = importlib.import_module(name)
        for kind in vars(module).values():
            if isinstance(kind, type) and "__del__" in vars(kind) and kind.__module__ == name:
                yield kind


@pytest.mark.parametrize("kind", list(finalized()), ids=lambda kind: kind.__qualname__)
def test_what_was_not_made_at_all_goes_without_a_word(
    silent: None, store: pyqstore.Store, kind: Any
) -> None:
    made = 0
    for arguments in ((), (store,)):
        with pytest.raises(TypeError):
            kind(*range(30))  # more than any takes
        try:
            kind.__new__(kind, *arguments)
            made += 1
        except TypeError:
            continue
    assert made > 0 or kind is pyqstore.Store


def interrupted_at(line: int, make: Callable[[], object], file: str) -> bool:
    """Whether it was, at that line of the constructors in the file that it runs."""
    left = line

    def trace(frame: FrameType, event: str, argument: object) -> Trace | None:
        nonlocal left
        code = frame.f_code
        if code.co_name != "__init__" or code.co_filename != str(PACKAGE / file):
            return None
        if event == "line":
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        made = make()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    close = getattr(made, "close", None)
    if close is not None:
        close()
    return False


def interrupt_everywhere(file: str, make: Callable[[], object]) -> None:
    line = 0
    while interrupted_at(line, make, file):
        line += 1
    assert line > 1


def test_what_was_interrupted_in_its_constructor_goes_without_a_word(
    silent: None, store: pyqstore.Store
) -> None:
    store.stream("s")
    with store.channel() as channel, jms.connect(store) as connection:
        interrupt_everywhere("channel/handle.py", store.channel)
        interrupt_everywhere("connection.py", store.connection)
        interrupt_everywhere("iteration.py", lambda: channel.consume("q"))
        interrupt_everywhere("stream_consumer.py", lambda: store.stream_consumer("s", "g"))
        interrupt_everywhere("session/link.py", lambda: connection.session("transacted"))
        interrupt_everywhere("session/pushing.py", connection.session)


def test_what_was_interrupted_in_a_constructor_of_asyncio_goes_without_a_word(
    silent: None, store: pyqstore.Store
) -> None:
    async def work() -> None:
        face = aio.Store(store)
        async with await face.channel() as channel:
            kind = type(channel)

            def make() -> object:
                return kind(store, face._threads, face._channels, None)

            lines = 0
            while interrupted_at(lines, lambda: gone.append(make()), "aio/channel/handle.py"):
                lines += 1
            assert lines > 1
            for each in gone:
                await each.close()
            interrupt_everywhere("aio/receiving.py", lambda: channel.consume("q"))

    gone: list[Any] = []
    asyncio.run(work())


def test_a_connection_of_pika_that_was_interrupted_goes_without_a_word(
    silent: None, tmp_path: Path
) -> None:
    parameters = pika.URLParameters(f"pyqstore://{tmp_path}/store")
    file = "compat/pika/adapters/blocking_connection.py"
    interrupt_everywhere(file, lambda: pika.BlockingConnection(parameters))


def test_a_store_whose_warning_is_an_error_is_closed_at_once(
    silent: None, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warn(*given: object) -> None:
        warnings.warn("for example", pyqstore.UnsafeFilesystem, stacklevel=2)

    monkeypatch.setattr("pyqstore.store.warn_of_surroundings", warn)
    with pytest.raises(pyqstore.UnsafeFilesystem, match="for example"):
        pyqstore.open(path)
    monkeypatch.undo()
    pyqstore.open(path).close()

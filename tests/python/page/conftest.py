"""A store, its page, and a browser that looks at it: one browser for each file of tests."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pyqstore

ROOT = Path(__file__).resolve().parents[3]


def tool(name: str) -> ModuleType:
    """A module of tools/."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def store(tmp_path: Path) -> Iterator[pyqstore.Store]:
    with pyqstore.open(tmp_path / "store", journal_file_bytes="1MiB") as store:
        yield store


@pytest.fixture
def channel(store: pyqstore.Store) -> Iterator[pyqstore.Channel]:
    with store.channel() as channel:
        yield channel


@pytest.fixture
def url(store: pyqstore.Store) -> Iterator[str]:
    with store.serve_page(0) as page:
        yield page.url


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """As of tools/browser.py; not at any page yet."""
    tools = tool("browser")
    if (program := tools.missing()) is not None:
        missing = pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip
        missing(f"{program} is missing: apt-get install chromium chromium-driver")
    browser = tools.Browser(tmp_path_factory.mktemp("chromium") / "profile")
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium: Any, url: str) -> Iterator[Any]:
    """At the page of the store.  At the end: nothing was forbidden, no script failed, and nothing
    but the server was asked."""
    chromium.requests()
    chromium.open(url)
    yield chromium
    assert chromium.violations() == []
    assert chromium.requests() - {"chrome://newtab"} <= {url.rstrip("/")}
    chromium.driver.get("about:blank")

"""Options of open(): what is taken, what Store.options keeps, what is refused, in which words."""

import inspect
import pydoc
from pathlib import Path
from typing import Any

import pytest

import pyqstore

DEFAULTS = {
    "memory_budget": 256 << 20,
    "embed_below": 4096,
    "segment_entries": 16384,
    "journal_file_bytes": 64 << 20,
    "message_file_bytes": 64 << 20,
    "body_bytes_max": 128 << 20,
    "checkpoint_bytes": 256 << 20,
    "checkpoint_interval": 60.0,
    "commit_delay_us": 0,
    "sync": "fdatasync",
    "recovery": "strict",
    "create": True,
    "read_only": False,
    "control": True,
}


def test_options_left_out_have_their_defaults(path: Path) -> None:
    with pyqstore.open(path) as store:
        assert dict(store.options) == DEFAULTS


def test_options_given_are_kept_and_read_only(path: Path) -> None:
    given: dict[str, Any] = {
        "memory_budget": "64MiB",
        "embed_below": 0,
        "segment_entries": 512,
        "journal_file_bytes": "1MiB",
        "message_file_bytes": 2**20,
        "body_bytes_max": "1 KiB",
        "checkpoint_bytes": "32MiB",
        "checkpoint_interval": 0.25,
        "commit_delay_us": 100,
        "sync": "none",
        "recovery": "salvage",
        "create": True,
        "read_only": False,
        "control": False,
    }
    with pyqstore.open(path, **given) as store:
        assert dict(store.options) == {
            **given,
            "memory_budget": 64 << 20,
            "journal_file_bytes": 1 << 20,
            "body_bytes_max": 1024,
            "checkpoint_bytes": 32 << 20,
        }
        with pytest.raises(TypeError):
            store.options["sync"] = "fdatasync"  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1000000", 10**6),
        ("64MiB", 64 << 20),
        ("64mib", 64 << 20),
        ("64 MB", 64 * 10**6),
        ("1GiB", 1 << 30),
        ("1.5GiB", 3 << 29),
        ("2000KB", 2 * 10**6),
    ],
)
def test_sizes_may_have_units(path: Path, text: str, size: int) -> None:
    with pyqstore.open(path, memory_budget=text, journal_file_bytes="1MiB") as store:
        assert store.options["memory_budget"] == size


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("memory_budget", -1, "memory_budget must be 65536 to"),
        ("memory_budget", "12 parsecs", "memory_budget: '12 parsecs' is not a size"),
        ("memory_budget", "-1MiB", "is not a size"),
        ("embed_below", -1, "embed_below must be 0 to"),
        ("segment_entries", 1000, "segment_entries must be a power of two from"),
        ("journal_file_bytes", 100_000, "journal_file_bytes must be a power of two from 65536"),
        ("journal_file_bytes", 1024, "journal_file_bytes must be a power of two from 65536"),
        ("message_file_bytes", "3MiB", "message_file_bytes must be a power of two"),
        ("segment_entries", 8, "segment_entries must be a power of two from 16 to 65536"),
        ("checkpoint_bytes", -1, "checkpoint_bytes must be 0 to"),
        ("checkpoint_interval", -1, "checkpoint_interval must be 0 to"),
        ("checkpoint_interval", float("nan"), "checkpoint_interval must be 0 to"),
        ("checkpoint_interval", float("inf"), "checkpoint_interval must be 0 to"),
        ("body_bytes_max", 0, "body_bytes_max must be 1 to"),
        ("commit_delay_us", -1, "commit_delay_us must be 0 to"),
        ("sync", "fsync", "sync must be 'fdatasync' or 'none', not 'fsync'"),
        ("recovery", "hope", "recovery must be 'strict' or 'salvage'"),
    ],
)
def test_value_out_of_range_is_named_with_the_range(
    path: Path, name: str, value: object, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        pyqstore.open(path, **{name: value})  # type: ignore[arg-type]
    assert not path.exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory_budget", 1.5),
        ("memory_budget", True),
        ("segment_entries", "512"),
        ("sync", None),
        ("create", 1),
        ("checkpoint_bytes", None),
        ("checkpoint_interval", "60"),
        ("checkpoint_interval", True),
        ("progress", "loud"),
    ],
)
def test_value_of_wrong_type_is_named(path: Path, name: str, value: object) -> None:
    with pytest.raises(TypeError, match=name):
        pyqstore.open(path, **{name: value})  # type: ignore[arg-type]


def test_unknown_option_is_a_type_error_that_names_the_known_ones(path: Path) -> None:
    with pytest.raises(TypeError, match=r"'memory'.*memory_budget.*recovery.*create"):
        pyqstore.open(path, memory=1)  # type: ignore[call-arg]
    assert not path.exists()


@pytest.mark.parametrize(
    ("given", "seconds"), [(None, 0.0), (0, 0.0), (7, 7.0), (0.0001, 0.001), (1.5, 1.5)]
)
def test_checkpoint_interval_is_in_seconds(path: Path, given: float | None, seconds: float) -> None:
    with pyqstore.open(path, checkpoint_interval=given) as store:
        assert store.options["checkpoint_interval"] == seconds


def test_segment_entries_are_fixed_at_creation(path: Path) -> None:
    pyqstore.open(path, segment_entries=512).close()
    with pyqstore.open(path) as store:
        assert store.options["segment_entries"] == 512
    with pytest.raises(ValueError, match=r"segment_entries is 1024.*created with 512"):
        pyqstore.open(path, segment_entries=1024)


def test_help_of_open_shows_the_options_with_their_defaults() -> None:
    shown = inspect.signature(pyqstore.open).parameters
    assert shown["memory_budget"].default == 256 << 20
    assert shown["sync"].default == "fdatasync"
    assert set(shown) == {"path", *pyqstore.StoreOptions.__annotations__}
    text = pydoc.render_doc(pyqstore.open)
    assert all(name in text for name in shown)

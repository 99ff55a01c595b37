"""spark_udfs.session: which Java is taken, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_udfs.session import JavaNotFoundError, find_java


def install(root: Path, name: str, version: str) -> Path:
    """A folder that looks like an installed Java."""
    home = root / name
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


def test_find_java_says_what_to_install_when_there_is_none(tmp_path: Path) -> None:
    install(tmp_path, "java-8", "1.8.0_392")
    install(tmp_path, "java-11", "11.0.20")
    with pytest.raises(JavaNotFoundError, match="openjdk-17-jre-headless"):
        find_java(str(tmp_path))


def test_find_java_prefers_17_then_21_then_the_newest(tmp_path: Path) -> None:
    for name, version in {"a": "25.0.1", "b": "24", "c": "11.0.2"}.items():
        install(tmp_path, name, version)
    assert find_java(str(tmp_path)) == str(tmp_path / "a")
    install(tmp_path, "d", "21.0.4")
    assert find_java(str(tmp_path)) == str(tmp_path / "d")
    install(tmp_path, "e", "17.0.15")
    assert find_java(str(tmp_path)) == str(tmp_path / "e")


def test_find_java_takes_the_environment_at_its_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = install(tmp_path, "chosen", "21")
    monkeypatch.setenv("JAVA_HOME", str(chosen))
    assert find_java(str(tmp_path / "none")) == str(chosen)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(JavaNotFoundError, match="gone"):
        find_java(str(tmp_path))


def test_find_java_takes_the_one_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = install(tmp_path / "opt", "jdk", "17.0.1")
    install(tmp_path, "other", "17.0.2")
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert find_java(str(tmp_path)) == str(home)
